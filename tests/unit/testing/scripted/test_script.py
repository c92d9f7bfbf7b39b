import pytest

from walle_stream.errors import SourceError, SourceNotFoundError
from walle_stream.testing.scripted import END, abort, broken, pause, write_script
from walle_stream.testing.scripted.script import read_script

EVENT = {"device_id": "a", "kind": "click", "page_id": "p", "event_time_ms": 7}


def test_steps_are_read_in_their_order_with_an_end_behind_them(tmp_path):
    path = tmp_path / "s.jsonl"
    steps = [EVENT, {"late": EVENT}, pause("x"), {"duplicate": EVENT}, broken("{", "b"), abort("y")]
    write_script(path, steps)
    read = read_script(path)
    assert [step.kind for step in read] == [
        "event", "late", "pause", "duplicate", "broken", "abort", "end",
    ]  # fmt: skip
    assert [step.device_id for step in read] == ["a", "a", "", "a", "b", "", ""]
    assert [step.text for step in read[4:]] == ["{", "y", ""]
    assert [step.origin for step in read if step.device_id] == [
        f"s.jsonl#{row}" for row in (1, 2, 3, 4)
    ]


def test_what_an_event_leaves_out_follows_from_the_rest(tmp_path):
    write_script(tmp_path / "s", [EVENT, {**EVENT, "id": "own", "ingest_time_ms": 9, "uid": "u"}])
    first, second, _ = (step.event for step in read_script(tmp_path / "s"))
    assert (first.id, first.page_instance, first.ingest_time_ms) == ("click", "", 7)
    assert (second.id, second.ingest_time_ms, second.uid) == ("own", 9, "u")


def test_ends_may_stand_anywhere_and_lines_may_be_for_people(tmp_path):
    write_script(tmp_path / "s", [EVENT, END, EVENT, END])
    text = "# two visits\n\n" + (tmp_path / "s").read_text() + "  \n"
    (tmp_path / "s").write_text(text)
    assert [step.kind for step in read_script(tmp_path / "s")] == ["event", "end"] * 2
    (tmp_path / "empty").touch()
    assert [step.kind for step in read_script(tmp_path / "empty")] == ["end"]


@pytest.mark.parametrize(
    ("line", "place", "text"),
    [
        ('{"device_id": "a"', ":2:", "not JSON"),
        ("[1]", ":2:1:", "expected an object"),
        ('{"pause": "a b"}', ":2:2:", "expected a name of letters"),
        ('{"abort": "../x"}', ":2:2:", "expected a name of letters"),
        ('{"end": false}', ":2:2:", "expected true"),
        ('{"pause": "a", "while": 3}', ":2:16:", "no key 'while'"),
        ('{"broken": "x"}', ":2:2:", "device id is empty"),
        ('{"broken": 3, "device_id": "a"}', ":2:2:", "the row as text"),
        ('{"late": 3}', ":2:1:", "expected an event"),
        ('{"halt": true}', ":2:2:", "neither a command (late, duplicate"),
        ('{"device_id": "a", "kind": "poke", "page_id": "p", "event_time_ms": 1}', ":2:20:", "Invalid enum value 'poke'"),
        ('{"device_id": "a", "kind": "click", "page_id": "p"}', ":2:1:", "`event_time_ms`"),
        ('{"device_id": "a", "event_time_ms": "1"}', ":2:20:", "Expected `int`"),
        ('{"device_id": "", "kind": "click", "page_id": "p", "event_time_ms": 1}', ":2:2:", "empty"),
        ("\xff", ":2:", "not JSON"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_step_is_named_with_its_place(tmp_path, line, place, text):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"# first\n" + line.encode("latin-1") + b"\n")
    with pytest.raises(SourceError) as caught:
        read_script(path)
    assert str(caught.value).startswith(f"{path}{place}")
    assert text in str(caught.value)
    assert str(caught.value).endswith("correct the script")


def test_a_script_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SourceNotFoundError, match="does not exist"):
        read_script(tmp_path / "none")
