"""The fleet's benchmark: a small fleet from end to end, and what it says of it."""

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _bench_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "fleet.json"
    command = [sys.executable, str(ROOT / "bench/fleet.py"), "--quick", "--trial"]
    done = subprocess.run(
        [*command, "--json", str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done


def test_devices_rest_on_disk_with_all_they_had(measured):
    result = measured[0]
    assert result["active"]["active_devices"] == 1_000
    assert result["resting"]["active_devices"] == 0
    check = result["check"]
    assert check["devices_with_features"] == 1_000
    assert check["checked"] == check["cursors"] == check["pages"] == check["states"] == 100


def test_waking_and_weighing_have_figures(measured):
    result = measured[0]
    for name in ("active", "resting"):
        assert result[name]["after"]["rss_mib"] >= result[name]["after"]["uss_mib"] > 0
        assert result[name]["single"]["wall_ms"]["count"] == 90
        assert result[name]["bulk"]["events"] == 250


def test_every_mix_is_measured_and_the_hot_device_has_half(measured):
    (one,) = measured[0]["hot"]["rounds"]
    assert set(one) == {"alone", "even", "hot"}
    assert one["hot"]["events"] == one["even"]["events"] == 2 * one["alone"]["events"]
    for mix in one.values():
        assert mix["others"]["wall_ms"]["count"] > mix["same_partition"]["wall_ms"]["count"] > 0
        assert mix["others"]["cpu_ms"]["p99"] >= 0


def test_a_small_fleet_meets_no_bar(measured):
    bars = measured[0]["bars"]
    assert len(bars) == 4
    assert not any(bar["met"] for bar in bars)
    assert all(bar["note"] for bar in bars)


def test_the_report_shows_the_tables(measured, monkeypatch, tmp_path):
    import report  # noqa: PLC0415 - bench is no package of ours

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "fleet.json").write_text(json.dumps(measured[0]))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "## Fleet of 1,000 devices" in text
    assert "| at rest |" in text
    assert "A TRIAL" in text


def test_traffic_gives_a_hot_device_every_second_event():
    from fleet_parts.events import HOT_DEVICE, traffic  # noqa: PLC0415 - same

    events = list(islice(traffic(10, "hot"), 400))
    assert sum(event.device_id == HOT_DEVICE for event in events) == 200
    others = [(e.device_id, e.kind) for e in events if e.device_id != HOT_DEVICE]
    assert others == [(e.device_id, e.kind) for e in islice(traffic(10, "alone"), 200)]


def test_a_reader_leaves_out_what_was_committed():
    from fleet_parts.events import fill  # noqa: PLC0415 - same
    from fleet_parts.source import FleetReader, Stage  # noqa: PLC0415 - same

    def batches(offsets, size):
        reader = FleetReader(lambda _stage: fill(50), Stage(), offsets)
        reader.batch_events = size
        found = []
        while not reader.is_done:
            found.extend(reader.read())
        return found

    whole = batches({}, 1_000)
    offsets = {batch.partition: (7).to_bytes(8) for batch in whole}
    rest = batches(offsets, 3)
    for batch in whole:
        events = [e for each in rest if each.partition == batch.partition for e in each.events]
        assert events == list(batch.events)[7:]
        assert int.from_bytes(batch.offset) == len(batch.events)
