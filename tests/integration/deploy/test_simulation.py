"""Packages on kinds of devices, in real VMs and processes."""

import argparse
import json
import os
import select
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from walle_deploy.cli import simulate as command
from walle_deploy.simulation import interpreters
from walle_deploy.simulation.events import record_events
from walle_deploy.simulation.kinds import DeviceKindsSpec
from walle_deploy.simulation.simulate import simulate
from walle_stream.app.programs.packages import find_task, package_task
from walle_stream.app.resources import shipped_configs
from walle_stream.errors import ReleaseStateError

pytestmark = pytest.mark.integration

TASK = """\
apiVersion: walle/v1
kind: Task
metadata: {name: visit}
spec:
  version: "%s"
  script: visit.py
  triggers: [{sequence: [page_exit]}]
  config: {os: android}
  limits: {wallTime: 20s, strikes: 2}
"""
GOOD = """
def run(ctx, page):
    visits = ctx.state.get("visits", 0) + 1
    ctx.state.put("visits", visits)
    ctx.emit({"visit": visits, "clicks": len(page.filter(kind="click"))})
"""
ON_IOS = """
def run(ctx, page):
    visits = ctx.state.get("visits", 0) + 1
    ctx.state.put("visits", visits)
    if ctx.config["os"] == "ios":
        raise KeyError("no such widget")
    ctx.emit({"visit": visits, "clicks": len(page.filter(kind="click"))})
"""
CRASH = """
def run(ctx, page):
    if ctx.config["os"] == "ios" and ctx.device_id == "phone-1":
        chain = iter([1])
        for _ in range(300_000):
            chain = map(int, chain)
        next(chain, None)
    ctx.emit({"clicks": len(page.filter(kind="click"))})
"""
LOOP = """
def run(ctx, page):
    total = 0
    for number in range(ctx.config.get("turns", 1)):
        total += number
    ctx.emit({"total": total})
"""
HOG = """
def run(ctx, page):
    kept = []
    for number in range(ctx.config.get("mib", 1)):
        kept.append(bytes(1 << 20))
    ctx.emit({"kept": len(kept)})
"""


HEAD = "apiVersion: walle/v1\nkind: DeviceKinds\nmetadata: {name: fleet}\n"
COMMAND = """
import argparse
from walle_deploy.cli import simulate
parser = argparse.ArgumentParser()
simulate.add(parser.add_subparsers())
options = parser.parse_args()
raise SystemExit(options.run(options))
"""


def build(folder, script, version, more=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "visit.py").write_text(script)
    (folder / "task.yaml").write_text(TASK % version + f"  {more}\n")
    return package_task(find_task(folder / "task.yaml"))


def events(devices=3, pages=4, widget="buy"):
    lines, now = [], 1_700_000_000_000
    for page in range(pages):
        for device in range(devices):
            for kind in ("page_enter", "click", "page_exit"):
                now += 1_000
                lines.append(
                    {
                        "device_id": f"phone-{device}",
                        "id": kind,
                        "kind": kind,
                        "page_id": "product",
                        "page_instance": str(page),
                        "event_time_ms": now,
                        "ingest_time_ms": now,
                        "contents": {"widget": widget},
                    }
                )
    return b"\n".join(json.dumps(line).encode() for line in lines)


def kinds(*given, **spec):
    return DeviceKindsSpec.model_validate({"kinds": list(given), **spec}, by_alias=True)


IOS = {"name": "ios", "os": "ios", "config": {"os": "ios"}}
ANDROID = {"name": "android", "os": "android"}


def test_a_version_that_fails_on_one_kind_of_devices_is_stopped_and_says_where(tmp_path):
    good, bad = build(tmp_path / "1", GOOD, "1"), build(tmp_path / "2", ON_IOS, "2")
    report = simulate(bad, kinds(ANDROID, IOS), events(), good)
    android, ios = report.kinds
    assert report.status == "failed"
    assert (android.status, android.candidate.runs, android.candidate.failures) == ("passed", 12, 0)
    assert android.drift.ratio == 0
    assert ios.status == "failed"
    assert ios.candidate.failure_classes == {"KeyError": 12}
    assert ios.previous.failures == 0
    first = ios.candidate.first_failure
    assert (first.device, first.event, first.error) == ("phone-0", 3, "KeyError")
    assert json.loads(first.line)["kind"] == "page_exit"
    assert "visit.py:6: KeyError" in first.message
    [reason] = report.reasons
    assert reason.startswith("ios: 12 of 12 runs failed (100.00%, 0.00% before), first at event 3")

    # what was wrong before is no reason to stop what is not worse
    again = simulate(bad, kinds(IOS), events(), bad)
    assert again.status == "passed"


def test_a_script_that_ends_its_process_costs_its_kind_alone(tmp_path):
    good, bad = build(tmp_path / "1", GOOD, "1"), build(tmp_path / "2", CRASH, "2")
    report = simulate(bad, kinds(IOS, ANDROID), events(), good)
    ios, android = report.kinds
    assert (ios.status, android.status) == ("failed", "passed")
    assert ios.previous.runs == 12
    assert ios.candidate.ended.startswith("its process was ended by SIG")
    assert (ios.candidate.first_failure.device, ios.candidate.first_failure.event) == ("phone-1", 6)
    # the version before may be the one that crashes
    [ios] = simulate(good, kinds(IOS), events(), bad).kinds
    assert (ios.status, ios.candidate.runs, ios.drift) == ("passed", 12, None)
    assert ios.previous.ended
    # and is no excuse for one that fails
    failing = build(tmp_path / "3", ON_IOS, "3")
    assert simulate(failing, kinds(IOS), events(), bad).status == "failed"


def test_a_task_in_a_process_of_its_own_is_quarantined_and_the_rest_is_simulated(tmp_path):
    script = CRASH.replace('ctx.config["os"] == "ios" and ', "")
    bad = build(tmp_path / "1", script, "1", "isolation: process")
    report = simulate(bad, kinds(ANDROID, tolerances={"failureRate": 0.1}), events())
    [android] = report.kinds
    run = android.candidate
    assert (report.status, run.ended, run.runs) == ("failed", "", 12)
    assert (run.failures, run.crashes) == (4, 4)
    assert run.failure_classes == {"Quarantined": 4}
    assert run.first_failure.device == "phone-1"


def test_slow_devices_have_less_time_and_small_ones_less_memory(tmp_path):
    loop, hog = build(tmp_path / "1", LOOP, "1"), build(tmp_path / "2", HOG, "1")
    slow = {"name": "slow", "steps": 1_000, "config": {"turns": 5_000}}
    fast = {"name": "fast", "steps": 100_000, "config": {"turns": 5_000}}
    spec = kinds(slow, fast)
    found = simulate(loop, spec, events(1, 1))
    assert [each.status for each in found.kinds] == ["failed", "passed"]
    assert found.kinds[0].candidate.failure_classes == {"StepsExceeded": 1}
    assert found.kinds[0].candidate.strikes == 1
    small = {"name": "small", "memory": "32MiB", "config": {"mib": 1_000}}
    large = {"name": "large", "memory": "512MiB", "config": {"mib": 100}}
    found = simulate(hog, kinds(small, large), events(1, 1))
    assert [each.status for each in found.kinds] == ["failed", "passed"]
    assert set(found.kinds[0].candidate.failure_classes) <= {"MemoryError", "RunStopped"}


def test_a_kind_that_cannot_be_simulated_has_not_passed(tmp_path):
    package = build(tmp_path / "1", GOOD, "1")
    old = {"name": "old", "interpreter": "cpython-39"}
    report = simulate(package, kinds(ANDROID, old), events())
    assert [each.status for each in report.kinds] == ["passed", "failed"]
    assert "the package was checked with cpython-3" in report.reasons[0]
    # events that wake nobody prove nothing
    report = simulate(package, kinds(ANDROID), b"")
    assert report.status == "not_simulated"
    assert report.reasons == ("android: no recorded event wakes the task: record others",)


def test_other_features_than_before_are_drift_and_the_report_is_the_same_every_time(tmp_path):
    other = GOOD.replace('"clicks": len', '"clicks": visits % 2 + len')
    good, drifted = build(tmp_path / "1", GOOD, "1"), build(tmp_path / "2", other, "2")
    spec = kinds(ANDROID, tolerances={"drift": 0.25})
    reports = [simulate(drifted, spec, events(), good) for _ in range(2)]
    for report in reports:
        assert report.reasons == (
            "android: 6 of 12 runs have other features than before (50.00%, tolerated 25.00%)",
        )
        for run in (report.kinds[0].candidate, report.kinds[0].previous):
            assert sum(run.latency_us.values()) == 12
            run.latency_us = {}  # times alone may differ
    assert reports[0] == reports[1]


def test_a_pipelines_source_is_as_good_as_recorded_events():
    pipeline = shipped_configs() / "template" / "pipeline.yaml"
    task = package_task(find_task(pipeline))
    report = simulate(task, kinds(ANDROID), record_events(pipeline, 100))
    assert report.status == "passed"
    assert report.kinds[0].candidate.runs > 0


def test_what_is_stopped_ends_at_once(tmp_path):
    package = build(tmp_path / "1", GOOD + "    sum(range(10**12))\n", "1")
    spec, stop = kinds(IOS, ANDROID, timeLimit="10m"), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(simulate, package, spec, events(2, 1), at_once=1, stop=stop)
        stop.set()
        assert isinstance(running.exception(60), ReleaseStateError)


def test_what_never_ends_is_ended(tmp_path):
    # C code obeys nobody: the pool gives it up after its wall time, or the kind's limit comes first
    package = build(tmp_path / "1", GOOD + "    sum(range(10**12))\n", "1")
    slow = {**IOS, "speed": 0.0005}
    [ios] = simulate(package, kinds(slow), events(2, 1)).kinds
    assert ios.status == "failed"
    assert ios.candidate.ended == (
        "a run did not stop when it was told to (limits.wallTime, memory)"
    )
    assert ios.candidate.first_failure.device == "phone-0"
    [ios] = simulate(package, kinds(IOS, timeLimit="1s"), events(2, 1)).kinds
    assert (ios.status, ios.candidate.ended) == (
        "failed",
        "it took longer than 1 s (timeLimit) and was ended",
    )


def test_a_simulation_ends_with_the_process_that_waits_for_it(tmp_path):
    package, kind, recorded = tmp_path / "p.walle", tmp_path / "kinds.yaml", tmp_path / "e.jsonl"
    package.write_bytes(build(tmp_path / "1", GOOD + "    sum(range(10**12))\n", "1"))
    recorded.write_bytes(events(2, 1))
    kind.write_text(f"{HEAD}spec: {{timeLimit: 1h, kinds: {json.dumps([{**IOS, 'speed': 100}])}}}")
    given = ["simulate", str(package), "--kinds", str(kind), "--events", str(recorded)]
    with subprocess.Popen([sys.executable, "-c", COMMAND, *given]) as process:
        children = []
        while not children and process.poll() is None:
            found = Path(f"/proc/{process.pid}/task").glob("*/children")
            children = [int(each) for path in found for each in path.read_text().split()]
        ended = select.poll()
        for each in map(os.pidfd_open, children):
            ended.register(each, select.POLLIN)
        process.kill()
        assert ended.poll(60_000)


def test_an_interpreter_that_is_not_there_is_no_pass(tmp_path, monkeypatch):
    package = build(tmp_path / "1", GOOD, "1")
    monkeypatch.setattr(interpreters, "CURRENT_TAG", "cpython-300")  # so that ours is another one
    interpreters._find_interpreter.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    report = simulate(package, kinds(ANDROID), events())
    assert report.status == "not_simulated"
    assert "on this machine" in report.reasons[0]
    python = tmp_path / "python3.14"
    for text, said in (("exit 3", "cannot simulate"), ("echo cpython-27", "it says that it is")):
        for name in ("python3.13", "python3.14"):
            python = tmp_path / name
            python.write_text(f"#!/bin/sh\n{text}\n")
            python.chmod(0o755)
        interpreters._find_interpreter.cache_clear()
        report = simulate(package, kinds(ANDROID), events())
        assert (report.status, said in report.reasons[0]) == ("not_simulated", True)
    interpreters._find_interpreter.cache_clear()


def run_command(*arguments):
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    options = parser.parse_args(["simulate", *map(str, arguments)])
    return options.run(options)


def test_the_command_says_what_was_found(tmp_path, capsys):
    good, bad = tmp_path / "good.walle", tmp_path / "bad.walle"
    good.write_bytes(build(tmp_path / "1", GOOD, "1"))
    bad.write_bytes(build(tmp_path / "2", ON_IOS, "2"))
    recorded, fleet = tmp_path / "events.jsonl", tmp_path / "kinds.yaml"
    recorded.write_bytes(events())
    fleet.write_text(HEAD + f"spec: {{kinds: {json.dumps([ANDROID, IOS])}}}\n")
    given = ["--kinds", fleet, "--events", recorded]
    assert run_command(good, *given) == 0
    header, android, _ = capsys.readouterr().out.splitlines()
    assert header.split() == ["kind", "result", "runs", "failed", "p50", "ms", "p99", "ms", "drift"]
    assert android.split()[:4] == ["android", "passed", "12", "0"]
    assert run_command(bad, *given, "--previous", good, "--json") == 16
    done = capsys.readouterr()
    report = json.loads(done.out)
    assert report["status"] == "failed"
    assert [each["status"] for each in report["kinds"]] == ["passed", "failed"]
    assert report["kinds"][0]["drift"]["ratio"] == 0
    assert done.err.startswith(
        "walle: visit@2 failed on 1 of 2 kinds of devices: ios: 12 of 12 runs failed"
    )
