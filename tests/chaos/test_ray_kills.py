"""kill -9 of host processes, of the cloud side's and of drivers under --runtime ray.

Not marked ``chaos``: starting Ray takes long, so one Python does. ``make chaos``
kills 150 times.
"""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.scripted_visits import PIPELINE
from walle_stream.app.queries.query import features_lines
from walle_stream.testing.chaos import Campaign, ChaosPlan, PartPlan, render
from walle_stream.testing.scripted import Gates, pause, write_script

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("ray") is None, reason="the extra `ray` is not installed"),
]

ROOT = Path(__file__).resolve().parents[2]
KILLS = {"host": 10, "cloud": 1, "driver": 2}
CLOUD_KILLS = 3
TIMEOUT_S = 120.0


def test_kills_in_one_cluster_change_no_byte(tmp_path):
    rows = gzip.decompress((ROOT / "configs/samples/kuairand_feed.csv.gz").read_bytes())
    feed = tmp_path / "feed.csv"
    feed.write_bytes(b"\n".join(rows.splitlines()[:4_001]) + b"\n")
    plan = ChaosPlan(
        pipeline=str(ROOT / "configs/ipv.yaml"),
        overrides=(
            f"spec.source.path={feed}",
            "spec.runtime.partitions=4",
            "spec.state.journalEvents=100",
            "spec.runtime.activeDevices=30",
        ),
        parts=(PartPlan("ray", sum(KILLS.values()), KILLS),),
        seed=7,
    )
    report = Campaign(plan, tmp_path / "c").run()
    assert not report.mismatches, render(report)
    [part] = report.parts
    assert part.by_role == KILLS
    print(render(report))


def visits(*times_ms):
    for time_ms in times_ms:
        page = {"device_id": "a", "page_id": "shop", "page_instance": str(time_ms)}
        yield {**page, "kind": "page_enter", "event_time_ms": time_ms}
        yield {**page, "kind": "page_exit", "event_time_ms": time_ms + 500}


def test_a_run_ends_when_the_cloud_side_has_everything(ray_environ, tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "visits.py").write_text("def run(ctx, page):\n    ctx.emit({})\n")
    script, data_dir = tmp_path / "steps.jsonl", tmp_path / "d"
    write_script(script, [*visits(1_000, 2_000), pause("half"), *visits(3_000)])
    gates = Gates(tmp_path / "steps.jsonl.gates")
    command = [sys.executable, "-m", "walle_stream.cli", "run", tmp_path / "p.yaml"]
    command += ["--data-dir", data_dir, "--json", "--runtime", "ray"]
    process = subprocess.Popen(command, env=ray_environ, stderr=subprocess.PIPE, text=True)
    assert gates.await_reached("half", TIMEOUT_S)
    killed = kill_cloud(process, data_dir, set())
    gates.release("half")
    # away for longer than a flush may take: what the host read last is in its outbox
    for _ in range(CLOUD_KILLS):
        killed = kill_cloud(process, data_dir, killed)
    _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, said
    assert len(list(features_lines(data_dir))) == 3


def kill_cloud(process, data_dir, killed):
    """Kill the next process of the cloud side as soon as the driver knows it, if the run lives."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while process.poll() is None:
        assert time.monotonic() < deadline_s
        status = json.loads((data_dir / "status.json").read_bytes())
        if status["cloud_pid"] not in {0, *killed}:
            with suppress(ProcessLookupError):  # the run has ended by itself since
                os.kill(status["cloud_pid"], signal.SIGKILL)
            return {status["cloud_pid"], *killed}
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
    return killed
