"""Snapshots in a folder, and in a real S3 server, pass the suite of every store of snapshots."""

from pathlib import Path

import pytest

from tests.s3 import BUCKET
from walle_stream.store.objects import FolderObjects, open_objects
from walle_stream.testing.snapshot_suite import SnapshotSuite


class TestFolderObjects(SnapshotSuite):
    def reach(self, place: Path) -> FolderObjects:
        return FolderObjects(place)


@pytest.mark.full
class TestS3(SnapshotSuite):
    @pytest.fixture(autouse=True)
    def _served(self, s3):
        self.server = s3

    def reach(self, place):
        url = f"s3://{BUCKET}/{place.parent.name}/{place.name}"
        return open_objects(url, {"endpoint": self.server.endpoint})
