"""The VM benchmark runs in its quick form and writes what the report reads."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "vm.json"
    command = [sys.executable, str(ROOT / "bench/vm.py"), "--quick", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import report  # noqa: PLC0415 - bench is no package of ours

    return report


def test_every_part_is_there(measured):
    result, done = measured
    wanted = {"settings", "machine", "versions", "seed", "date", "bars"}
    assert wanted | {"classes", "overhead", "memory", "interference", "guards"} <= set(result)
    assert "Throughput" in done.stdout
    assert "round 1, control" in done.stderr


def test_rounds_hold_every_contender_alone_and_at_once(measured):
    classes = measured[0]["classes"]
    names = {"vms", "threads", "processes"} | (
        {"executor"} if sys.version_info >= (3, 14) else set()
    )
    assert list(classes) == ["light", "middle", "heavy"]
    for each in classes.values():
        assert each["same_features"] is True
        assert each["rounds_counted"] == len(each["rounds"]) == 1
        (one,) = each["rounds"]
        assert set(one["runs_per_s"]) == {f"{name} {count}" for name in names for count in (1, 2)}
        assert all(speed > 0 for speed in one["runs_per_s"].values())
        assert set(each["task_time_ms"]) == names
        assert "improvement_mean_percent" in each["figure"]


def test_overhead_memory_and_stops_have_figures(measured):
    result = measured[0]
    assert [row["batch_size"] for row in result["overhead"]["by_batch"]] == [1, 10, 100, 1_000]
    assert result["overhead"]["floor_us"]["median"] > 0
    assert result["memory"]["leak"]["runs"] == 2_000
    assert len(result["memory"]["leak"]["samples"]) > 1
    assert all(stops["count"] == 5 for stops in result["interference"]["stops"].values())
    assert len(result["interference"]["stops"]) == 3
    assert set(result["guards"]["watchdog"]) == {"percent", "with_us_per_run", "without_us_per_run"}


def test_a_quick_look_meets_no_bar_that_needs_a_control(measured):
    bars = {bar["name"]: bar for bar in measured[0]["bars"]}
    assert not bars["heavy: VMs / processes"]["met"]
    assert bars["heavy: VMs / processes"]["note"]
    assert {"name", "bar", "value", "met", "note"} == set(bars["heavy: VMs / GIL threads"])


def test_the_report_shows_tables_and_the_figure(measured, report, monkeypatch, tmp_path):
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    (tmp_path / "vm-3.14.json").write_text(json.dumps(measured[0]))
    assert report.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert "### Bars" in text
    assert "| light | VMs |" in text
    assert [path.suffix for path in tmp_path.glob("*.svg")] == [".svg"]
