"""Where databases of more partitions are: they count at once, or not at all."""

import pytest

from walle_stream.errors import StoreError
from walle_stream.store.growing import (
    GrowingFolder,
    GrowingSnapshots,
    growing_snapshots,
    of_count,
    tables_in,
)
from walle_stream.store.objects import FolderObjects
from walle_stream.store.snapshots import PartitionSnapshots, SnapshotPoint


@pytest.fixture(params=["folder", "snapshots"])
def growing(request, tmp_path):
    """Makes databases of two partitions, of which the second has nothing, into four."""
    place = tmp_path / "place"
    old = of_count(place, 2)
    if request.param == "folder":
        (old / "00").mkdir(parents=True)
        (old / "00" / "CURRENT").write_text("old")
        return lambda: GrowingFolder(place, 2, 4)
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "CURRENT").write_text("old")
    objects = FolderObjects(tmp_path)
    PartitionSnapshots(objects, "place/of-2", 0).put(tmp_path / "d", SnapshotPoint(1, 1))

    def point(path):
        return SnapshotPoint(3, 4), "ab" * 8

    return lambda: GrowingSnapshots(objects, "place", (2, 4), tmp_path / "work", point)


def test_new_databases_count_when_they_are_published(growing, tmp_path):
    made = growing()
    assert (made.old(0) / "CURRENT").read_text() == "old"
    assert made.old(1) is None
    for turn in ("left half made", "whole"):
        made = growing()
        for number in (0, 2):
            path = made.new(number)
            path.mkdir(parents=True, exist_ok=True)
            (path / "CURRENT").write_text(turn)
        assert not made.is_published
    made.publish()
    assert made.is_published
    folder = of_count(tmp_path / "place", 4)
    if isinstance(made, GrowingSnapshots):
        snapshots = PartitionSnapshots(FolderObjects(folder.parent), folder.name, 2)
        assert (snapshots.newest, snapshots.last_epoch) == (SnapshotPoint(3, 4), 3)
        assert snapshots.incarnation("cd" * 8) == "ab" * 8
        snapshots.fetch(tmp_path / "back")
        assert (tmp_path / "back" / "CURRENT").read_text() == "whole"
    else:
        assert (folder / "02" / "CURRENT").read_text() == "whole"
    made.forget()
    assert not of_count(tmp_path / "place", 2).exists()


def test_a_folder_without_snapshots_is_one_line(tmp_path):
    objects = FolderObjects(tmp_path / "nowhere")
    growing = growing_snapshots(objects, "shop", (2, 4), lambda _: (SnapshotPoint(1, 1), ""))
    with pytest.raises(StoreError, match="nowhere"):
        growing.__enter__()


def test_tables_of_a_worker_are_those_of_the_highest_number(tmp_path):
    assert tables_in(tmp_path) == tables_in(tmp_path / "nowhere") == []
    for name in ("of-2/00", "of-16/2", "of-16/100", "of-16/3.part", "of-32.new/00", "partitions/0"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "CURRENT").touch()
    (tmp_path / "of-16" / "5").mkdir()
    assert tables_in(tmp_path) == [tmp_path / "of-16" / "2", tmp_path / "of-16" / "100"]
