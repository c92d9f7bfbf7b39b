"""A loss is reported first and noted behind that; what was not noted is reported again."""

import pytest

from walle_connectors.embedded import CONNECTOR
from walle_stream.actors.plan.latency import Latencies
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.app.figures.ledger import LedgerReport
from walle_stream.app.losses import tell_losses
from walle_stream.app.report import CloudReport, RunReport
from walle_stream.errors import DataLostError
from walle_stream.store.datadir import DataDir
from walle_stream.store.partition import PartitionStore
from walle_stream.tunnel.receiver import MergeCounts
from walle_stream.wire.ledger import Ledger
from walle_stream.wire.rows import Counters, PartitionHead

PARTITIONS = 3


class Run:
    """A data directory whose partitions and cloud side lost something."""

    def __init__(self, path):
        self.path = path
        with DataDir.open(
            path, partition_count=PARTITIONS, pipeline="p", source={"kind": "none"}
        ) as made:
            self.paths = [made.partition_path(number) for number in range(PARTITIONS)]
            self.cloud_path = made.cloud_path
        CONNECTOR.open_features(self.cloud_path).close()
        self.lines = []

    def heads(self, change=None):
        found = []
        for path in self.paths:
            with PartitionStore.open(path) as store:
                rows = PartitionRows(store)
                found.append(rows.head())
                if change is not None:
                    rows.commit(change, b"offset")
        return found

    def lose(self, losses):
        self.heads(PartitionHead(Counters(lost_reports=losses)))

    def report(self, missing=0, told=0):
        """As the next run makes it."""
        heads = self.heads()
        untold = {n: head.counters.losses - head.told_losses for n, head in enumerate(heads)}
        return RunReport(
            pipeline="p",
            data_dir=str(self.path),
            stopped_by="end",
            counters=Counters(lost_reports=sum(head.counters.losses for head in heads)),
            cloud=CloudReport(0, 0, 0, 0, 0, missing_frames=missing, told=told),
            ledger=LedgerReport.of(Counters(), Ledger()),
            tasks=[],
            problems=[],
            exit_to_commit_ms=Latencies().report(),
            run_events=0,
            wall_s=0.0,
            cpu_s=0.0,
            untold_losses=sum(untold.values()),
            lost_in={n: heads[n].counters.losses for n in untold if untold[n]},
        )

    def tell(self, **given):
        return tell_losses(self.report(**given), self.lines.append)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "data")


def test_where_nothing_is_lost_nothing_is_said(run):
    assert (run.tell(), run.lines) == (0, [])


def test_a_loss_is_reported_and_noted_with_its_offset_kept(run):
    run.lose(2)
    assert run.tell() == DataLostError.exit_code
    assert run.lines[0].startswith("lost for the cloud side: 6 frames")
    assert [head.told_losses for head in run.heads()] == [2] * PARTITIONS
    with PartitionStore.open(run.paths[0]) as store:
        assert PartitionRows(store).offset() == b"offset"
    assert (run.tell(), len(run.lines)) == (0, 1)


def test_a_process_that_dies_before_the_line_has_noted_nothing(run):
    run.lose(1)

    def die(_line):
        assert [head.told_losses for head in run.heads()] == [0] * PARTITIONS
        raise SystemExit(137)

    with pytest.raises(SystemExit):
        tell_losses(run.report(), die)
    assert run.tell() == DataLostError.exit_code


def test_what_cannot_be_noted_is_reported_again(run, caplog):
    run.lose(1)
    with DataDir.open(run.path, partition_count=PARTITIONS, pipeline="p", source={}):
        assert run.tell() == DataLostError.exit_code
    assert "again" in caplog.text
    assert run.tell() == DataLostError.exit_code
    assert run.tell() == 0


def test_what_the_cloud_side_lacks_is_noted_in_its_own_store(run):
    assert run.tell(missing=3, told=1) == DataLostError.exit_code
    store = CONNECTOR.open_features(run.cloud_path)
    assert store.stats == MergeCounts(told=3)
    store.close()
    assert run.tell(missing=3, told=3) == 0
