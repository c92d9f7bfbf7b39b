"""The growth benchmark: a short run from end to end, and what its endless shop gives."""

import json
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
EVENTS = 20_000


@pytest.fixture(autouse=True)
def _bench_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "growth.json"
    command = [sys.executable, str(ROOT / "bench/growth.py"), "--devices", "50"]
    done = subprocess.run(
        [*command, "--events", str(EVENTS), "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


def drawn(count, **kwargs):
    from growth_parts.endless import Shop, endless  # noqa: PLC0415 - bench is no package of ours

    return list(islice(endless(Shop(count, devices=10, **kwargs)), count))


def test_all_events_pass_and_memory_is_sampled_all_along(measured):
    assert measured["events"] == EVENTS
    assert measured["features"] > 0
    samples = measured["samples"]
    # a read may give more events than lie between two samples
    assert len(samples) > 50
    assert [each["events"] for each in samples] == sorted({each["events"] for each in samples})
    for each in samples:
        assert each["rss_mib"] >= each["anonymous_mib"] > each["rocksdb_mib"]
        assert each["rest_mib"] == pytest.approx(each["rss_mib"] - each["rocksdb_mib"], abs=0.05)
    assert samples[-1]["rocksdb_write_buffers_mib"] > 0


def test_a_short_run_does_not_meet_the_bar(measured):
    bars = measured["bars"]
    assert len(bars) == 2
    assert not any(bar["met"] for bar in bars)
    assert {bar["note"] for bar in bars} == {"fewer events than the bar's"}


def test_marks_are_medians_before_a_fifth_and_the_end():
    from growth_parts.tables import _KINDS, bars, marks  # noqa: PLC0415 - same

    def sample(events, mib):
        kinds = {f"{kind}_mib": mib for kind in _KINDS}
        return {"events": events, "python_blocks": 1, **kinds}

    sizes = {1_500_000: 100.0, 2_000_000: 104.0, 2_500_000: 900.0, 9_500_000: 110.0}
    samples = [sample(*each) for each in {**sizes, 10_000_000: 104.2}.items()]
    result = {"events": 10_000_000, "samples": samples, "settings": {"is_fresh": False}}
    result["marks"] = marks(result)
    assert (result["marks"]["first"]["rss"], result["marks"]["first"]["peak"]) == (102.0, 104.0)
    assert (result["marks"]["last"]["rss"], result["marks"]["last"]["peak"]) == (107.1, 110.0)
    result["marks"]["last"]["rest"] = 108.0
    found = [(bar["value"], bar["met"], bar["note"]) for bar in bars(result)]
    assert found == [(5.0, True, ""), (5.88, False, "")]


def test_the_report_shows_table_and_figure(measured, monkeypatch, tmp_path):
    import report  # noqa: PLC0415 - same

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "growth.json").write_text(json.dumps(measured))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "## Memory over 20,000 events" in text
    assert "| RocksDB: write buffers |" in text
    assert (tmp_path / "growth.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("is_fresh", [False, True])
def test_visits_go_on_in_time_and_occurrences_are_new(is_fresh):
    events = drawn(3_000, is_fresh=is_fresh)
    times = [event.ingest_time_ms for event in events]
    assert times == sorted(times)
    assert len({event.device_id for event in events}) == 10
    doubled = sum(count > 1 for count in Counter(event.uid for event in events).values())
    # one in a hundred arrives twice, on purpose
    assert 0 < doubled < 100
    entered = [(e.device_id, e.page_instance) for e in events if e.kind == "page_enter"]
    assert len(entered) - len(set(entered)) < 20


def test_rounds_repeat_the_visits_but_share_nothing():
    events = drawn(3_000)
    first = events[0]
    again = next(
        event for event in events[1:] if event.contents == first.contents and event.uid[0] == "1"
    )
    assert again.contents is not first.contents
    assert (again.device_id, again.kind) == (first.device_id, first.kind)
    assert again.ingest_time_ms - first.ingest_time_ms > 0
    assert again.page_instance != first.page_instance


def test_a_reader_gives_as_many_events_as_were_asked_for():
    from growth_parts.endless import EndlessSource, Shop  # noqa: PLC0415 - same

    seen = []
    reader = EndlessSource(Shop(1_000, devices=10), seen.append).open({}, 1, 300)
    batches = []
    while not reader.is_done:
        batches.extend(reader.read())
    assert [len(batch.events) for batch in batches] == [300, 300, 300, 100]
    assert seen == [0, 300, 600, 900]
    given = [event for batch in batches for event in batch.events]
    assert msgspec.json.encode(given) == msgspec.json.encode(drawn(1_000))
    with pytest.raises(ValueError, match="new data directory"):
        EndlessSource(Shop(1_000), seen.append).open({}, 2, 300)
