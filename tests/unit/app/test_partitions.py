"""Opening a partition where its last owner may still have it."""

import pytest

from walle_stream.actors.parts.snapshots import SnapshotKeeper
from walle_stream.app.partitions import _expect_later, _fetch_state
from walle_stream.errors import SourceMovedError
from walle_stream.store import partition
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import FolderSnapshots


def test_a_last_owner_that_is_about_to_go_is_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "partitions" / "03"
    owner = PartitionStore.open(path)
    monkeypatch.setattr(partition.time, "sleep", lambda _s: owner.close())
    keeper = SnapshotKeeper(FolderSnapshots(tmp_path / "shared", 3), None, 1.0)
    _fetch_state(keeper, path, patience_s=60.0)
    PartitionStore.open(path).close()


@pytest.mark.parametrize("last", [(3 << 32) + 5, 7 << 32])
def test_a_generation_that_is_not_later_than_the_last_one_is_refused(last):
    _expect_later((3 << 32) - 1, 4, 3)
    with pytest.raises(SourceMovedError) as refused:
        _expect_later(last, 4, 3)
    assert refused.value.generation == last >> 32
