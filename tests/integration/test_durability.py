"""Power cuts: a process is killed, and what no flush had reached is cut off its logs."""

import random
import shutil

import pytest

from tests.integration.conftest import ROOT, Job, report_of
from tests.integration.noting_syncs import cut
from walle_connectors.embedded import log
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
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
    assert (report["cloud"]["gaps"], report["untold_losses"]) == (0, 0)
    if sync != "false":
        assert (report["resent_features"], report["forgotten_frames"]) == (0, 0), crash


@pytest.mark.parametrize("share", [0.0, pytest.param(0.5, marks=pytest.mark.full)])
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
    assert list(features_lines(data_dir)) == whole
    assert "calls were sent again" in walle("status", data_dir).stdout


def test_a_partition_of_an_older_copy_is_no_former_owner(job, sample, tmp_path, whole):
    data_dir, copy = tmp_path / "d", tmp_path / "copy"
    partition = data_dir / "partitions/01"
    job(data_dir, sample, limit=1_000)
    shutil.copytree(partition, copy)
    for _ in range(3):  # more openings than the copy has had
        job(data_dir, sample, limit=500)
    shutil.rmtree(partition)
    shutil.copytree(copy, partition)
    report = job(data_dir, sample)
    assert report["forgotten_frames"] > 0
    assert (report["cloud"]["frames_refused"], report["untold_losses"]) == (0, 0)
    assert list(features_lines(data_dir)) == whole


@pytest.mark.parametrize("is_there", [True, False])
def test_an_old_copy_of_the_cloud_side_gets_what_the_tunnel_has_deleted(
    sample, tmp_path, whole, is_there, monkeypatch
):
    monkeypatch.setattr(log, "_DELETE_EVERY", 2)
    job, cloud, copy = Job(None), tmp_path / "d/cloud", tmp_path / "copy"
    job(tmp_path / "d", sample, limit=1_000)
    shutil.copytree(cloud, copy)
    job(tmp_path / "d", sample, "runtime.batchEvents=50")
    shutil.rmtree(cloud)
    if is_there:
        shutil.copytree(copy, cloud)
    report = job(tmp_path / "d", sample)
    assert report["resent_features"] > 0
    losses = {
        name: report["cloud"][name] for name in ("gaps", "missing_features", "missing_frames")
    }
    assert set(losses.values()) | {report["untold_losses"]} == {0}, losses
    assert list(features_lines(tmp_path / "d")) == whole


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


REPORTS = ("spec.reports.every=1h", "spec.reports.scenario=s", "spec.runtime.partitions=2")


def test_a_loss_is_reported_by_the_first_run_that_ends_whatever_was_killed_before(runs, sample):
    file = ROOT / "configs/ipv.yaml"
    assert runs.run("false", "", file, *REPORTS).returncode == 0
    for part in ("tunnel", "cloud"):
        shutil.rmtree(runs.data_dir / part)
    # behind the close of the last partition
    assert runs.run("false", "close.before:2", file, *REPORTS).returncode == -9
    # a process that its VMs have worn out runs twice, and tells of the last run
    settings = [f"spec.source.path={sample}", *REPORTS]
    for _ in range(2):
        run = LocalRun(Assembly.load(file, settings), RunOptions(runs.data_dir, 1))
        assert run.run().untold_losses > 0
    done = runs.run("false", "", file, *REPORTS)
    assert (done.returncode, report_of(done)["lost_reports"]) == (
        21,
        report_of(done)["untold_losses"],
    )
    assert "frames that may have been reports" in done.stderr
    assert runs.run("false", "", file, *REPORTS).returncode == 0
