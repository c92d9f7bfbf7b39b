"""Opening a partition where its last owner may still have it."""

import pytest

from walle_stream.actors.parts.snapshots import SnapshotKeeper
from walle_stream.app.partitions import _fetch_state, _least_epoch
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


@pytest.mark.parametrize(
    ("last", "is_anew", "least"),
    [
        (0, False, 3 << 32),
        (2 << 32, False, 3 << 32),
        # opened before in the same one: the database counts on
        ((3 << 32) + 5, False, 3 << 32),
        # above what restarts of that opening may have taken
        ((7 << 32) + 5, True, (7 << 32) + 65_536),
        (2 << 32, True, 3 << 32),
    ],
)
def test_an_epoch_is_above_what_anybody_had(last, is_anew, least):
    assert _least_epoch(last, 0, 3, is_anew=is_anew) == least


def test_who_comes_with_an_earlier_generation_is_refused():
    with pytest.raises(SourceMovedError, match=r"4 was opened in generation 7 .* in generation 3"):
        _least_epoch(7 << 32, 4, 3, is_anew=False)
