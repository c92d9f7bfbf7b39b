"""Thirty times kill -9, half of them at named crash points; ``make chaos`` does 1,000."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from walle_stream.testing.chaos import Campaign, ChaosPlan, PartPlan, render
from walle_stream.testing.chaos.processes import with_environment

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120.0


@pytest.fixture
def feed(tmp_path):
    rows = gzip.decompress((ROOT / "configs/samples/kuairand_feed.csv.gz").read_bytes())
    path = tmp_path / "feed.csv"
    path.write_bytes(b"\n".join(rows.splitlines()[:4_001]) + b"\n")
    return path


def overrides(feed):
    runtime = (
        "spec.runtime.partitions=4",
        "spec.runtime.batchEvents=20",
        "spec.state.journalEvents=100",
        "spec.runtime.activeDevices=30",
    )
    return (f"spec.source.path={feed}", *runtime)


KILLS = 30


def test_kills_lose_nothing_and_double_nothing(feed, tmp_path):
    plan = ChaosPlan(
        pipeline=str(ROOT / "configs/ipv.yaml"),
        overrides=overrides(feed),
        parts=(PartPlan("local", KILLS),),
        seed=11,
    )
    report = Campaign(plan, tmp_path / "chaos").run()
    assert report.kills == KILLS
    assert not report.mismatches, render(report)


def begin(folder, feed, kills):
    command = [sys.executable, "-m", "walle_stream.testing.chaos", "--folder", folder, "--resume"]
    command += ["--target", f"isolated={kills}", "--seed", "5", "--json", folder / "report.json"]
    command += ["--set", f"spec.source.path={feed}"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def ledger(folder):
    try:
        return json.loads((folder / "campaign.json").read_bytes())
    except FileNotFoundError:
        return None


def test_a_campaign_that_is_killed_itself_goes_on(feed, tmp_path):
    folder = tmp_path / "chaos"
    campaign = begin(folder, feed, kills=8)
    deadline = time.monotonic() + WAIT_S
    # some kills are done, and a pipeline of the next life or run is alive
    while not (
        (found := ledger(folder))
        and found["report"]["parts"][0]["kills"] >= 2
        and with_environment("WALLE_CHAOS", str(folder))
    ):
        assert campaign.poll() is None, campaign.stderr.read()
        assert time.monotonic() < deadline
    os.kill(campaign.pid, signal.SIGKILL)
    campaign.communicate()
    before = ledger(folder)["report"]["parts"][0]
    again = begin(folder, feed, kills=8)
    _, said = again.communicate(timeout=WAIT_S)
    assert again.returncode == 0, said
    report = json.loads((folder / "report.json").read_bytes())
    [part] = report["parts"]
    assert (report["resumes"], part["kills"], part["mismatches"]) == (1, 8, [])
    assert before["kills"] < 8
    assert all(part["by_phase"][phase] >= count for phase, count in before["by_phase"].items())
    assert part["by_role"].keys() <= {"run", "vm"}
    assert not with_environment("WALLE_CHAOS", str(folder))
