"""Power cuts: a process is killed, and what no flush had reached is cut off its logs."""

import json
import os
import random
import shutil
import subprocess
import sys

import pytest

from tests.integration.conftest import ROOT
from tests.integration.noting_syncs import cut
from walle_stream.app.query import features_lines

pytestmark = pytest.mark.integration


class Runs:
    """Runs of the main job over one data directory, each in a process that notes its flushes."""

    def __init__(self, folder, sample):
        self.data_dir, self.notes, self.sample = folder / "d", folder / "notes", sample

    def run(self, sync, crash="", file=ROOT / "configs/ipv.yaml"):
        environ = {**os.environ, "PYTHONHASHSEED": "0"} | ({"WALLE_CRASH": crash} if crash else {})
        settings = [
            f"spec.source.path={self.sample}",
            f"spec.state.sync={sync}",
            "spec.state.syncInterval=20ms",
            "spec.runtime.batchEvents=400",
        ]
        command = [sys.executable, "-m", "tests.integration.noting_syncs", self.notes]
        command += ["run", file, "--data-dir", self.data_dir, "--json"]
        command += [each for setting in settings for each in ("--set", setting)]
        return subprocess.run(
            command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False
        )

    def features(self):
        command = [sys.executable, "-m", "walle_stream.cli", "features", "list", "--json"]
        done = subprocess.run(
            [*command, "--data-dir", self.data_dir], capture_output=True, check=True
        )
        return done.stdout


@pytest.fixture
def runs(tmp_path, sample):
    return Runs(tmp_path, sample)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, sample):
    """All features, of a run that nothing happened to."""
    runs = Runs(tmp_path_factory.mktemp("whole"), sample)
    assert runs.run("false").returncode == 0
    return runs.features()


def report_of(done):
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("sync", ["true", "interval", "false"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_after_a_power_cut_every_feature_is_there(runs, whole, sync, share):
    crashes = ["commit.after:30", "send.after:60", "ack.before:12", "close.before:3"]
    crash = random.Random(f"{sync} {share}").choice(crashes)
    assert runs.run(sync, crash).returncode == -9
    cut(runs.data_dir, runs.notes, share)
    done = runs.run(sync)
    report = report_of(done)
    assert (done.returncode, runs.features() == whole) == (0, True), (crash, done.stderr)
    assert (report["cloud"]["gaps"], report["untold_losses"]) == (0, 0)
    if sync != "false":
        assert (report["resent_features"], report["forgotten_frames"]) == (0, 0), crash


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_what_tunnel_and_cloud_forgot_is_sent_again(runs, whole, share):
    assert runs.run("false", "close.before:9").returncode == -9
    for part in ("tunnel", "cloud"):
        cut(runs.data_dir / part, runs.notes, share)
    done = runs.run("false")
    assert (done.returncode, runs.features() == whole) == (0, True), done.stderr
    assert report_of(done)["resent_features"] > 0


def test_a_cloud_side_whose_disk_is_gone_gets_everything_again(job, sample, tmp_path, whole, walle):
    data_dir = tmp_path / "d"
    first = job(data_dir, sample, "state.sync=true")
    for part in ("tunnel", "cloud"):
        shutil.rmtree(data_dir / part)
    again = job(data_dir, sample, "state.sync=interval")
    assert again["resent_features"] == again["features"] == first["features"]
    assert (again["cloud"]["gaps"], again["untold_losses"]) == (0, 0)
    assert b"\n".join(features_lines(data_dir)) + b"\n" == whole
    assert "calls were sent again" in walle("status", data_dir).stdout


def test_features_that_come_out_different_are_a_loss_with_a_code_of_its_own(runs, tmp_path, walle):
    assert runs.run("false", "close.before:9").returncode == -9
    cut(runs.data_dir / "partitions", runs.notes, 0.0)
    # the devices have forgotten all, and their script is another one now
    script = (
        (ROOT / "configs/ipv.py").read_text().replace("ctx.emit(", 'feature["new"] = 1; ctx.emit(')
    )
    (tmp_path / "ipv.py").write_text(script)
    other = shutil.copy(ROOT / "configs/ipv.yaml", tmp_path)
    done = runs.run("false", file=other)
    assert done.returncode == 21, done.stderr
    differing = report_of(done)["cloud"]["differing_features"]
    assert differing > 0
    assert f"{differing:,} features that differ" in done.stderr
    assert f"{differing:,}" in walle("status", runs.data_dir).stdout
    assert runs.run("false", file=other).returncode == 0  # it was told
