"""The benchmark of the pipeline: a small shop from end to end, with the cost of each stage."""

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_quick_look_has_a_figure_for_every_stage(tmp_path):
    path = tmp_path / "pipeline.json"
    command = [sys.executable, str(ROOT / "bench/pipeline.py"), "--jobs", "shop", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--devices", "40", "--sessions", "2", "--json", str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shop = json.loads(path.read_text())["shop"]
    for job in (shop, shop["packed"]):
        assert job["features"] > 0
        assert job["walle_events_per_cpu_second"] > 0
        stages = job["stages_us_per_event"]
        # each was found under the name that the code has for it today, and ran
        for name in ("read and decode", "VM: host's side", "write batch", "cloud merge"):
            assert stages[name] > 0


def test_a_busy_machine_and_partitions_are_compared_by_cpu(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    from pipeline_parts import busy  # noqa: PLC0415 - no package of ours

    class Machine:
        neighbours = 0

    @contextmanager
    def neighbours(count):
        Machine.neighbours = count
        yield
        Machine.neighbours = 0

    def run_walle(_source, runtime):
        cpu_s = 2.0 + 0.5 * Machine.neighbours + 0.1 * (runtime == ["spec.runtime.partitions=16"])
        report = {"events": 100, "events_per_cpu_second": 100 / cpu_s, "commits": 7}
        return report | {"exit_to_commit_ms": {"p99": 5.0}}

    monkeypatch.setattr(busy, "busy_neighbours", neighbours)
    monkeypatch.setattr(busy.shop, "run_walle", run_walle)
    found = busy.measure(tmp_path, 2)
    assert found["busy_to_quiet"] == {"2": round(3.1 / 2.1, 3), "12": round(8.1 / 2.1, 3)}
    assert found["partitions_to_one"] == 1.05
    text = "\n".join(busy.lines(found))
    assert all(each in text for each in ("16 partitions, 12 neighbours", "1.476 (2)", "1.05 (bar"))


def test_two_hosts_over_parts_are_compared_without_their_starts(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    from pipeline_parts import hosts  # noqa: PLC0415 - no package of ours

    def run_walle(parts, _settings, arguments):
        assert parts == tmp_path / "parts"
        if "--limit" in arguments:
            return {"events": 0, "wall_s": 5.0}
        return {"events": 600, "wall_s": 5.0 + 6.0 / int(arguments[3])}

    loops = iter((1.5, 1.95, 1.95))
    monkeypatch.setattr(hosts.shop, "partition", lambda *_: (tmp_path / "parts", 2.5))
    monkeypatch.setattr(hosts.shop, "run_walle", run_walle)
    monkeypatch.setattr(hosts, "_loops", lambda: next(loops))
    found = hosts.measure(tmp_path, 3)
    assert found["events_per_second"] == {"1": 100, "2": 200}
    assert (found["two_to_one"], found["rounds_with_two_cores"]) == (2.0, 2)
    text = "\n".join(hosts.lines(found))
    assert all(each in text for each in ("cut in 2.5 s", "2.0 (bar: 1.4)", "in 2 of 3 rounds"))


def test_neighbours_work_until_the_block_ends(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import neighbours  # noqa: PLC0415 - no package of ours

    started = []

    class Noted(subprocess.Popen):
        def __init__(self, command):
            super().__init__(command)
            started.append(self)

    monkeypatch.setattr(neighbours.subprocess, "Popen", Noted)
    with neighbours.busy_neighbours(2):
        assert [each.poll() for each in started] == [None, None]
    assert [each.returncode for each in started] == [-9, -9]
