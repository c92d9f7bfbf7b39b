"""Opening a partition where its last owner may still have it."""

from walle_stream.actors.snapshot_keeper import SnapshotKeeper
from walle_stream.app.partitions import _fetch_state
from walle_stream.store import partition
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import PartitionSnapshots


def test_a_last_owner_that_is_about_to_go_is_waited_for(tmp_path, monkeypatch):
    path = tmp_path / "partitions" / "03"
    owner = PartitionStore.open(path)
    monkeypatch.setattr(partition.time, "sleep", lambda _s: owner.close())
    keeper = SnapshotKeeper(PartitionSnapshots(tmp_path / "shared", 3), None, 1.0)
    _fetch_state(keeper, path, patience_s=60.0)
    PartitionStore.open(path).close()
