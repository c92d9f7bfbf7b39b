"""Snapshots in a folder pass the suite of every store of snapshots."""

from pathlib import Path

from walle_stream.store.snapshots import FolderSnapshots
from walle_stream.testing.snapshot_suite import SnapshotSuite


class TestFolderSnapshots(SnapshotSuite):
    def reach(self, place: Path, partition: int) -> FolderSnapshots:
        return FolderSnapshots(place, partition)
