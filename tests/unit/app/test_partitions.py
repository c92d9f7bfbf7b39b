"""Opening a partition where its last owner may still have it, or another one is placed."""

import pytest

from walle_stream.actors.parts.snapshots import SnapshotKeeper
from walle_stream.app.partitions import PartitionOpener, _own_epoch
from walle_stream.errors import SourceMovedError
from walle_stream.store import partition
from walle_stream.store.objects import FolderObjects
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import PartitionSnapshots


def test_a_last_owner_that_is_about_to_go_is_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "partitions" / "03"
    owner = PartitionStore.open(path)
    monkeypatch.setattr(partition.time, "sleep", lambda _s: owner.close())
    assert _own_epoch(path, patience_s=60.0) == 0
    PartitionStore.open(path).close()


@pytest.mark.parametrize("last", [(3 << 32) + 5, 3 << 32, 7 << 32])
def test_a_generation_that_is_not_later_than_the_last_one_is_refused(tmp_path, monkeypatch, last):
    snapshots = PartitionSnapshots(FolderObjects(tmp_path / "shared"), "shop", 4)
    for epoch in ((3 << 32) - 1, last):
        snapshots.own(range(epoch, epoch + 1))
    keeper = SnapshotKeeper(snapshots, None, 1.0)
    monkeypatch.setattr(PartitionOpener, "_make_keeper", lambda *_: keeper)

    class DataDir:
        def partition_path(self, number):
            return tmp_path / str(number)

    class State:
        sync_ms = None

    opener = PartitionOpener(DataDir(), None, State(), *[None] * 6)
    with pytest.raises(SourceMovedError) as refused:
        opener.open(4, 3)
    assert refused.value.generation == last >> 32
    assert snapshots.last_epoch == last
