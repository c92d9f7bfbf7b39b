"""Owners of a partition, and the validity of its database."""

import pytest

from walle_stream.actors.parts.snapshots import SnapshotKeeper
from walle_stream.store.objects import FolderObjects
from walle_stream.store.snapshots import PartitionSnapshots, SnapshotPoint


@pytest.fixture
def machine(tmp_path):
    """Make machines; each takes the partition over with its own database, and the epoch of that."""

    def machine(name):
        path = tmp_path / name / "03"
        path.mkdir(parents=True, exist_ok=True)
        snapshots = PartitionSnapshots(FolderObjects(tmp_path / "shared"), "shop", 3)
        return path, SnapshotKeeper(snapshots, None, 1.0)

    return machine


def test_a_death_behind_the_claim_costs_nothing(machine):
    path, keeper = machine("a")
    (path / "CURRENT").write_text("months of state")
    for epoch in (8, 9, 10):  # each dies before the database knows of its epoch
        assert keeper.take_over(path, own_epoch=7) == epoch
        assert (path / "CURRENT").read_text() == "months of state"


def test_a_database_is_put_aside_where_somebody_else_had_the_partition(machine):
    path, keeper = machine("a")
    (path / "CURRENT").write_text("old")
    keeper.take_over(path, own_epoch=0)
    other, its = machine("b")
    assert its.take_over(other, own_epoch=0) == 2
    # it dies behind its claim, when it has not fetched yet: the database is as old as before
    assert machine("a")[1].snapshots.own() == 3
    assert keeper.take_over(path, own_epoch=1) == 4
    assert (path.with_name("03.aside-1") / "CURRENT").read_text() == "old"


def test_the_newest_snapshot_replaces_the_database(machine):
    path, keeper = machine("a")
    (path / "CURRENT").write_text("old")
    keeper.take_over(path, own_epoch=0)
    other, its = machine("b")
    its.take_over(other, own_epoch=0)
    (other / "CURRENT").write_text("new")
    its.snapshots.put(other, SnapshotPoint(2, 1))
    assert keeper.take_over(path, own_epoch=1) == 3
    assert (path / "CURRENT").read_text() == "new"
