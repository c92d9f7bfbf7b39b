"""The latency benchmark: a small shop from end to end, and what its schedule promises."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from walle_connectors.simulator import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.clock import monotonic_ms

ROOT = Path(__file__).resolve().parents[2]
SHARES = {"0.25", "0.5", "0.75"}


@pytest.fixture(autouse=True)
def _bench_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "latency.json"
    command = [sys.executable, str(ROOT / "bench/latency.py"), "--quick", "--devices", "300"]
    command += ["--seconds", "1.5"]
    done = subprocess.run(
        [*command, "--json", str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text())


@pytest.fixture
def lines(tmp_path):
    timeline = Timeline(SimulatorModel(devices=20, sessions=1, payload_bytes=0))
    made = [line.data for window in range(timeline.windows) for line in timeline.lines(window)]
    (tmp_path / "shop.jsonl").write_bytes(b"\n".join([*made, b""]))
    return made


@pytest.fixture
def open_reader(lines, tmp_path):
    from latency_parts.paced import PacedSource, Schedule  # noqa: PLC0415 - no package of ours

    with ExitStack() as stack:

        def opened(rate, limit, batch_events=256):
            schedule = Schedule(rate)
            source = PacedSource(tmp_path / "shop.jsonl", schedule)
            reader = source.open({}, 1, batch_events, limit)
            stack.callback(reader.close)
            return reader, schedule

        yield opened


def read_out(reader):
    batches = []
    while not reader.is_done:
        batches.extend(reader.read())
    return batches


def test_every_share_has_figures_of_both_clocks_and_of_commits(measured):
    (one,) = measured["rounds"]
    assert set(one["rates"]) == SHARES == set(measured["shares"])
    assert len(one["controls"]) == len(SHARES) + 2
    for share, found in one["rates"].items():
        asked = one["fastest"]["events_per_s"] * float(share)
        assert found["asked_events_per_s"] == pytest.approx(asked, rel=0.01)
        assert found["wall_ms"]["count"] == found["cpu_ms"]["count"] > 0
        for name in ("wall_ms", "cpu_ms", "commit_gap_ms"):
            assert found[name]["p50"] <= found[name]["p99"] <= found[name]["max"]
        assert set(found["cores"]) == {"ours", "others", "stolen", "waited"}


def test_a_round_with_busy_neighbours_is_shown_as_it_is(measured):
    from latency_parts.tables import tables  # noqa: PLC0415 - same

    contended, (one,) = measured["contended"], measured["rounds"]
    assert contended["neighbours"] == 2
    assert set(contended["rates"]) == SHARES
    for share, found in contended["rates"].items():
        assert found["asked_events_per_s"] == one["rates"][share]["asked_events_per_s"]
    shown = [each for each in tables(measured) if "2 busy neighbours" in each.title]
    assert [len(each.rows) for each in shown] == [len(SHARES)]


def test_a_quick_look_meets_no_bar_but_shows_them(measured):
    bars = measured["bars"]
    assert len(bars) == 4
    assert not any(bar["met"] for bar in bars)
    assert all(bar["note"] for bar in bars)


def test_bars_are_met_on_a_quiet_machine_alone(measured):
    from latency_parts.tables import bars  # noqa: PLC0415 - same

    result = json.loads(json.dumps(measured)) | {"quick": False}
    found = result["rounds"][0]["rates"]["0.5"]
    found["wall_ms"]["p99"], found["cpu_ms"]["p99"] = 19.9, 20.1
    found["commit_gap_ms"] |= {"p99": 10.0, "max": 25.0}
    found |= {"backlog_ms": 0.0, "cores": {"others": 0.04, "stolen": None}}
    assert [bar["met"] for bar in bars(result)] == [True, False, True, False]
    found["cores"]["stolen"] = 0.02
    assert "not quiet" in bars(result)[0]["note"]
    found["backlog_ms"] = 1_000.0
    assert "keep up" in bars(result)[0]["note"]


def test_the_report_shows_tables_and_figure(measured, monkeypatch, tmp_path):
    import report  # noqa: PLC0415 - same

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "latency.json").write_text(json.dumps(measured | {"trial": True}))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "## Page exit to commit, the simulated shop" in text
    assert "How quiet the machine was" in text
    assert "A TRIAL" in text
    assert (tmp_path / "latency.svg").read_text().startswith("<svg")


def test_a_line_is_never_given_before_it_arrives(open_reader):
    reader, schedule = open_reader(20_000.0, 200)
    given = 0
    while not reader.is_done:
        batches = reader.read()
        now_ms = monotonic_ms()
        for batch in batches:
            assert batch.arrived_ms == schedule.arrival_ms(given)
            given += len(batch.events)
            assert schedule.arrival_ms(given - 1) <= now_ms
    assert given == 200


def test_lines_arrive_by_the_schedule_whether_or_not_they_are_read(lines, open_reader):
    reader, schedule = open_reader(1e9, 200, batch_events=64)
    batches = read_out(reader)
    # all had arrived: whole batches, and the last exit arrived long before it was read
    assert [len(batch.events) for batch in batches] == [64, 64, 64, 8]
    assert batches[-1].arrived_ms == pytest.approx(schedule.start_ms, abs=0.001)
    exits = [each for each in map(json.loads, lines[:200]) if each["kind"] == "page_exit"]
    assert set(schedule.exits) == {(each["device_id"], each["page_instance"]) for each in exits}
    assert max(schedule.exits.values()) <= schedule.arrival_ms(199)


def test_without_a_rate_all_that_is_asked_for_is_given(lines, open_reader):
    reader, _ = open_reader(0.0, 100, batch_events=30)
    batches = read_out(reader)
    assert [len(batch.events) for batch in batches] == [30, 30, 30, 10]
    assert {batch.arrived_ms for batch in batches} == {None}
    assert [event.uid for batch in batches for event in batch.events] == [
        json.loads(line)["uid"] for line in lines[:100]
    ]


def test_a_schedule_wants_a_new_directory_and_a_limit(lines, open_reader):
    with pytest.raises(ValueError, match="1 partition and a limit"):
        open_reader(1.0, None)
    reader, _ = open_reader(0.0, len(lines) + 1)
    with pytest.raises(ValueError, match=f"ends after {len(lines)} lines"):
        read_out(reader)


def test_cpu_time_between_two_looks_is_shared_evenly():
    from latency_parts.measuring import _cpu_at  # noqa: PLC0415 - same

    clocks = [(0.0, 5.0), (10.0, 7.0), (20.0, 17.0)]
    walls = [wall for wall, _ in clocks]
    found = [_cpu_at(at_ms, walls, clocks) for at_ms in (-1.0, 0.0, 5.0, 10.0, 15.0, 99.0)]
    assert found == [5.0, 5.0, 6.0, 7.0, 12.0, 17.0]


def test_an_exit_waits_from_its_own_arrival_to_its_features_commit():
    from latency_parts.commits import Commit  # noqa: PLC0415 - same
    from latency_parts.measuring import _waited  # noqa: PLC0415 - same
    from latency_parts.paced import Schedule  # noqa: PLC0415 - same

    def feature(instance, cause="exit"):
        page = {"device_id": "d", "page_instance": instance, "cause": cause, "entry": "feed"}
        return json.dumps(page).encode()

    schedule = Schedule(1_000.0)
    schedule.exits = {("d", "early"): 90.0, ("d", "1"): 110.0, ("d", "2"): 130.0}
    schedule.clocks = [(100.0, 10.0), (140.0, 30.0)]
    commits = [
        Commit(0, 145.0, 31.0, 5, [feature("early"), feature("1"), feature("lost", "timeout")]),
        Commit(0, 150.0, 34.0, 9, [feature("2")]),
    ]
    assert _waited(schedule, commits, 100.0) == ([35.0, 20.0], [16.0, 9.0])


def test_shares_are_above_0_and_at_most_1():
    command = [sys.executable, str(ROOT / "bench/latency.py"), "--shares", "1.5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "1.5 is no share" in done.stderr
