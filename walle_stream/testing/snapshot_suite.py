"""Conformance suite for stores of snapshots: what the next owner of a partition may rely on.

Subclass ``SnapshotSuite`` in a test file, say how a machine reaches the store, and pytest
runs every fact below against it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from walle_stream.ports import SnapshotPoint, SnapshotStore

_FILES = {"CURRENT": b"MANIFEST-1", "000008.sst": b"rows", "000009.sst": b"", "empty": b""}


class SnapshotSuite(ABC):
    """Facts about every store of snapshots; subclasses are collected by pytest."""

    @abstractmethod
    def reach(self, place: Path, partition: int) -> SnapshotStore:
        """Reach a partition's snapshots, as another machine would with every call.

        Args:
            place: Of the test; equal for all its machines.
            partition: Its number.
        """

    def put(
        self, tmp_path: Path, line: str, point: SnapshotPoint, files: Mapping[str, bytes] = _FILES
    ) -> None:
        """Have a machine put a checkpoint of some files."""
        checkpoint = tmp_path / f"{line}-{point.epoch}-{point.commits}"
        checkpoint.mkdir()
        for name, content in files.items():
            (checkpoint / name).write_bytes(content)
        self.reach(tmp_path / "shared", 3).put(checkpoint, point, line)
        assert _content(checkpoint) == files, "the checkpoint changed"

    def test_where_nothing_is_nothing_comes(self, tmp_path: Path) -> None:
        """A first owner is told so, and keeps what it has."""
        store = self.reach(tmp_path / "shared", 3)
        (tmp_path / "database").mkdir()
        (tmp_path / "database/own").write_bytes(b"1")
        assert (store.newest, store.last_epoch) == (None, 0)
        assert store.fetch(tmp_path / "database") is None
        assert _content(tmp_path / "database") == {"own": b"1"}

    def test_what_was_put_comes_back_in_place_of_what_was_there(self, tmp_path: Path) -> None:
        """All files of the checkpoint, and no others; what is done to them stays there."""
        self.put(tmp_path, "aa", SnapshotPoint(1, 5))
        (tmp_path / "database").mkdir()
        (tmp_path / "database/old").write_bytes(b"1")
        for _ in range(2):
            store = self.reach(tmp_path / "shared", 3)
            assert store.newest == SnapshotPoint(1, 5)
            assert store.fetch(tmp_path / "database") == SnapshotPoint(1, 5)
            assert _content(tmp_path / "database") == _FILES
            (tmp_path / "database/000008.sst").write_bytes(b"changed")
        assert self.reach(tmp_path / "shared", 4).newest is None

    def test_a_name_that_is_used_again_has_its_newest_content(self, tmp_path: Path) -> None:
        """Also of a table: its number may be given twice after a machine died."""
        for commits, content in enumerate((b"one", b"two", b"2nd"), 1):
            self.put(tmp_path, "aa", SnapshotPoint(1, commits), {**_FILES, "000008.sst": content})
            store = self.reach(tmp_path / "shared", 3)
            assert store.fetch(tmp_path / "database") == SnapshotPoint(1, commits)
            assert _content(tmp_path / "database")["000008.sst"] == content

    def test_the_highest_epoch_counts_however_much_a_former_owner_writes(
        self, tmp_path: Path
    ) -> None:
        """It was only cut off, and writes on."""
        self.put(tmp_path, "aa", SnapshotPoint(1, 5))
        self.put(tmp_path, "bb", SnapshotPoint(2, 6), {"CURRENT": b"of the owner"})
        self.put(tmp_path, "aa", SnapshotPoint(1, 900))
        store = self.reach(tmp_path / "shared", 3)
        assert store.newest == SnapshotPoint(2, 6)
        store.fetch(tmp_path / "database")
        assert _content(tmp_path / "database") == {"CURRENT": b"of the owner"}
        self.put(tmp_path, "bb", SnapshotPoint(2, 7), {"CURRENT": b"later"})
        assert self.reach(tmp_path / "shared", 3).newest == SnapshotPoint(2, 7)

    def test_two_that_write_at_once_leave_each_other_what_is_newer(self, tmp_path: Path) -> None:
        """As workers of a group may: an older line's end may be behind a newer one's begin."""
        self.put(tmp_path, "aa", SnapshotPoint(1, 5))
        self.put(tmp_path, "aa", SnapshotPoint(1, 9), {**_FILES, "000010.sst": b"newest"})
        self.put(tmp_path, "bb", SnapshotPoint(1, 7), {"CURRENT": b"between"})
        store = self.reach(tmp_path / "shared", 3)
        assert store.fetch(tmp_path / "database") == SnapshotPoint(1, 9)
        assert _content(tmp_path / "database") == {**_FILES, "000010.sst": b"newest"}
        self.put(tmp_path, "bb", SnapshotPoint(1, 11), {"CURRENT": b"last"})
        assert store.fetch(tmp_path / "database") == SnapshotPoint(1, 11)
        assert _content(tmp_path / "database") == {"CURRENT": b"last"}
        self.put(tmp_path, "aa", SnapshotPoint(1, 12), {**_FILES, "000010.sst": b"newest"})
        assert store.fetch(tmp_path / "database") == SnapshotPoint(1, 12)
        assert _content(tmp_path / "database") == {**_FILES, "000010.sst": b"newest"}

    def test_openings_are_known_whether_or_not_they_left_a_snapshot(self, tmp_path: Path) -> None:
        """The highest epoch is told, also behind a lower one."""
        for epoch, last in ((1, 1), (7 << 32, 7 << 32), (3, 7 << 32)):
            self.reach(tmp_path / "shared", 3).own(epoch)
            assert self.reach(tmp_path / "shared", 3).last_epoch == last
        assert self.reach(tmp_path / "shared", 4).last_epoch == 0
        assert self.reach(tmp_path / "shared", 3).newest is None

    def test_owners_agree_on_whose_devices_they_are(self, tmp_path: Path) -> None:
        """The first one says it for good, before any snapshot; each partition for itself."""
        for partition, own, first in ((3, "a", "a"), (3, "b", "a"), (4, "b", "b")):
            store = self.reach(tmp_path / "shared", partition)
            assert store.incarnation(own * 16) == first * 16
        self.put(tmp_path, "aa", SnapshotPoint(1, 5))
        assert self.reach(tmp_path / "shared", 3).incarnation("c" * 16) == "a" * 16


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
