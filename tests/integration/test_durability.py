"""Power cuts: a process is killed, and what no flush had reached is cut off its logs."""

import random
import shutil

import pytest

from tests.integration.conftest import ROOT, report_of
from tests.integration.noting_syncs import cut
from walle_stream.app.queries.query import features_lines

pytestmark = pytest.mark.integration


class Runs:
    """Runs of the main job over one data directory, each in a process that notes its flushes."""

    def __init__(self, forked, folder, sample):
        self.forked, self.sample = forked, sample
        self.data_dir, self.notes = folder / "d", folder / "notes"

    def run(self, sync, crash="", file=ROOT / "configs/ipv.yaml", *more):
        settings = [
            f"spec.source.path={self.sample}",
            f"spec.state.sync={sync}",
            "spec.state.syncInterval=20ms",
            "spec.runtime.batchEvents=400",
            *more,
        ]
        command = ["run", file, "--data-dir", self.data_dir, "--json"]
        command += [each for setting in settings for each in ("--set", setting)]
        module, environ = "tests.integration.noting_syncs", {"WALLE_CRASH": crash}
        return self.forked(module, self.notes, *command, environ=environ)

    def features(self):
        return list(features_lines(self.data_dir))


@pytest.fixture
def runs(forked, tmp_path, sample):
    return Runs(forked, tmp_path, sample)


@pytest.fixture(scope="module")
def whole(forked, tmp_path_factory, sample):
    """All features, of a run that nothing happened to."""
    runs = Runs(forked, tmp_path_factory.mktemp("whole"), sample)
    assert runs.run("false").returncode == 0
    return runs.features()


@pytest.mark.parametrize(
    ("sync", "share"),
    [
        ("true", 0.0),
        pytest.param("true", 0.5, marks=pytest.mark.full),
        pytest.param("interval", 0.0, marks=pytest.mark.full),
        ("interval", 0.5),
        ("false", 0.0),
        ("false", 0.5),
    ],
)
def test_after_a_power_cut_every_feature_is_there(runs, whole, sync, share):
    crashes = ["commit.after:30", "send.after:60", "ack.before:12", "close.before:3"]
    crash = random.Random(f"{sync} {share}").choice(crashes)
    assert runs.run(sync, crash).returncode == -9
    cut(runs.data_dir, runs.notes, share)
    done = runs.run(sync)
    report = report_of(done)
    assert (done.returncode, runs.features() == whole) == (0, True), (crash, done.stderr)
    assert report["cloud"]["gaps"] == 0


def test_an_older_copy_of_a_partition_has_its_cloud_side(job, sample, tmp_path, whole):
    data_dir, copy = tmp_path / "d", tmp_path / "copy"
    partition = data_dir / "partitions/01"
    job(data_dir, sample, limit=1_000)
    shutil.copytree(partition, copy)
    for _ in range(3):  # more openings than the copy has had
        job(data_dir, sample, limit=500)
    shutil.rmtree(partition)
    shutil.copytree(copy, partition)
    report = job(data_dir, sample)
    assert (report["cloud"]["frames_refused"], report["cloud"]["gaps"]) == (0, 0)
    assert list(features_lines(data_dir)) == whole
