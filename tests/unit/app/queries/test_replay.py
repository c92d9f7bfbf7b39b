"""Replaying: each letter once, marked after its record; letters that cannot be are reported."""

import json

import msgspec
import pytest

from walle_stream.app.queries import replay as replaying
from walle_stream.app.queries.record_file import RecordFile
from walle_stream.app.queries.replay import Wanted, replay
from walle_stream.errors import SourceError
from walle_stream.ports import KeptLetter
from walle_stream.reading.dead_letters import record_dead_letter

PAGE = [
    "p",
    "1",
    "exit",
    5,
    None,
    [["page_enter", "page_enter", 5, 6, None], ["x", "click", 7, 8, {"a": 1}]],
]


def kept(number, record=b'{"a":1}', pipeline="p", **fields):
    letter = record_dead_letter(record, route="decode", reason="r", origin=f"o:{number}")
    letter = msgspec.structs.replace(letter, **fields)
    return KeptLetter(
        letter=letter, pipeline=pipeline, incarnation="ab", partition=0, number=number
    )


class Target:
    def __init__(self):
        self.story = []

    def put(self, kept):
        self.story.append(kept.number)

    def flush(self):
        self.story.append("flush")

    def mark(self, keys):
        self.story.append(f"{len(keys)} marks")


def run(letters, done=(), target=None, **wanted):
    target = target or Target()
    report = replay(letters, set(done), Wanted(**wanted), target, target.mark, lambda _: None)
    return report, target.story


def test_marks_stand_behind_durable_records(monkeypatch):
    monkeypatch.setattr(replaying, "MARK_EVERY", 2)
    report, story = run([kept(n) for n in (1, 2, 3)])
    assert story == [1, 2, "flush", "2 marks", 3, "flush", "1 marks"]
    assert (report.replayed, report.size_bytes, report.skipped) == (3, 21, {})


def test_a_letter_that_comes_twice_is_replayed_once():
    report, story = run([kept(1), kept(2), kept(1)])
    assert (report.replayed, story[:2]) == (2, [1, 2])


def test_what_was_replayed_before_is_so_again_only_if_asked():
    done = [kept(1).idempotency_key]
    report, _ = run([kept(1), kept(2)], done)
    assert (report.replayed, sum(report.skipped.values())) == (1, 1)
    assert run([kept(1), kept(2)], done, is_again=True)[0].replayed == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"holds": "message"}, "message from the cloud"),
        ({"holds": "page"}, "page of a failed run"),
        ({"record": b""}, "empty"),
        ({"size_bytes": 9}, "only the beginning"),
        ({"digest": "00"}, "only the beginning"),
    ],
)
def test_what_is_no_whole_record_is_left_out(changes, words):
    report, story = run([kept(1, **changes)])
    assert (report.replayed, story) == (0, [])
    [reason] = report.skipped
    assert words in reason


def test_filters_name_letters():
    letters = [
        kept(1, device_id="a"),
        kept(2, device_id="b"),
        kept(3, device_id="a", route="late"),
        kept(4, device_id="a", pipeline="other"),
        kept(5, device_id="a", task="t"),
    ]
    assert run(letters, device_id="a", pipeline="p")[1][:3] == [1, 3, 5]
    assert run(letters, route="late")[1][:1] == [3]
    assert run(letters, task="t")[1][:1] == [5]
    assert run(letters, limit=2)[0].replayed == 2


def test_a_dry_run_touches_nothing():
    report = replay([kept(1)], set(), Wanted(), None, pytest.fail, lambda _: None)
    assert report.replayed == 1


def written(tmp_path, letters):
    out = RecordFile(tmp_path / "out.jsonl")
    for letter in letters:
        out.put(letter)
    out.commit()
    out.close()
    return (tmp_path / "out.jsonl").read_bytes()


def test_a_file_has_a_line_per_record(tmp_path):
    text = written(tmp_path, [kept(1, b'{"a":1}\r\n'), kept(2, b'{\n "b": 2}'), kept(3, b"\xff")])
    assert text == b'{"a":1}\n{  "b": 2}\n\xff\n'
    assert not (tmp_path / "out.jsonl.part").exists()


def test_a_file_has_the_events_of_pages(tmp_path):
    page = kept(1, msgspec.json.encode(PAGE), holds="page", device_id="d")
    lines = [json.loads(line) for line in written(tmp_path, [page]).splitlines()]
    assert [(each["device_id"], each["kind"], each["event_time_ms"]) for each in lines] == [
        ("d", "page_enter", 5),
        ("d", "click", 7),
    ]
    assert lines[1]["contents"] == {"a": 1}


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(SourceError, match="already exists"):
        RecordFile(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_nothing_is_left_of_a_file_that_was_given_up(tmp_path):
    out = RecordFile(tmp_path / "out")
    out.put(kept(1))
    out.close()
    assert list(tmp_path.iterdir()) == []


def test_letters_are_told_apart_by_where_they_are():
    keys = [kept(n).idempotency_key for n in (1, 2, 1)]
    assert len(set(keys)) == 2
    # what is the same letter elsewhere may have another number
    assert msgspec.structs.replace(kept(1), number=7).idempotency_key == keys[0]
    for changes in ({"digest": "0"}, {"task": "t"}, {"route": "late"}, {"device_id": "d"}):
        assert kept(1, **changes).idempotency_key not in keys
