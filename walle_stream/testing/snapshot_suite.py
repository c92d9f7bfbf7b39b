"""Conformance suite for stores of snapshots, as the next owner of a partition uses them.

Subclass ``SnapshotSuite`` in a test file and implement ``reach``; pytest then runs every test
below.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from walle_stream.errors import EpochTakenError, StoreCorruptedError
from walle_stream.ports import ObjectStore
from walle_stream.store.snapshots import ANY_EPOCH, PartitionSnapshots, SnapshotPoint

_FILES = {"CURRENT": b"MANIFEST-1", "000008.sst": b"rows", "000009.sst": b"", "empty": b""}
_PARTITION = "shop/of-16/p-03"
_RACERS = 8


class SnapshotSuite(ABC):
    """Tests that every store of snapshots must pass; pytest collects the subclasses."""

    @abstractmethod
    def reach(self, place: Path) -> ObjectStore:
        """Return the store; each call acts as another machine.

        Args:
            place: Folder of the test, the same for all its machines.
        """

    def owner(self, tmp_path: Path, epoch: int = 0, partition: int = 3) -> PartitionSnapshots:
        """Return a partition's snapshots on a new machine that claims an epoch, if given."""
        made = PartitionSnapshots(self.reach(tmp_path / "shared"), "shop/of-16", partition)
        if epoch:
            made.own(range(epoch, epoch + 1))
        return made

    def put(
        self,
        tmp_path: Path,
        owner: PartitionSnapshots,
        point: SnapshotPoint,
        files: Mapping[str, bytes] = _FILES,
    ) -> None:
        """Make an owner put a checkpoint of some files."""
        checkpoint = tmp_path / f"copy-{point.epoch}-{point.commits}"
        checkpoint.mkdir()
        for name, content in files.items():
            (checkpoint / name).write_bytes(content)
        owner.put(checkpoint, point)
        assert _content(checkpoint) == files, "the checkpoint changed"

    def fetched(self, tmp_path: Path) -> tuple[SnapshotPoint | None, dict[str, bytes]]:
        """Fetch the snapshot on another machine."""
        target = tmp_path / "database"
        point = self.owner(tmp_path).fetch(target)
        return point, _content(target)

    # Objects

    def test_objects_come_back_and_are_listed(self, tmp_path: Path) -> None:
        """Large objects come in pieces; a listing has only its folder, without deleted objects."""
        store, content = self.reach(tmp_path / "shared"), bytes(range(256)) * 50_000
        (tmp_path / "file").write_bytes(content)
        assert dict(store.listed("a")) == {}
        store.put("a/b/large", tmp_path / "file")
        store.put("ab/other", tmp_path / "file")
        assert store.create("a/small", b"1")
        assert b"".join(store.get("a/b/large")) == content
        assert dict(store.listed("a")) == {"a/b/large": len(content), "a/small": 1}
        store.delete(["a/b/large", "a/never"])
        store.delete([])
        assert dict(store.listed("a")) == {"a/small": 1}
        with pytest.raises(FileNotFoundError):
            list(store.get("a/b/large"))

    def test_of_several_that_create_one_succeeds(self, tmp_path: Path) -> None:
        """The winner's content is stored, and the others learn that they lost."""
        stores = [self.reach(tmp_path / "shared") for _ in range(_RACERS)]
        for turn in range(10):
            start = Barrier(_RACERS)

            def create(number: int, turn: int = turn, start: Barrier = start) -> bool:
                start.wait()
                return stores[number].create(f"race/{turn}", b"%d" % number)

            with ThreadPoolExecutor(_RACERS) as threads:
                won = list(threads.map(create, range(_RACERS)))
            assert won.count(True) == 1
            assert b"".join(stores[0].get(f"race/{turn}")) == b"%d" % won.index(True)

    # Snapshots

    def test_where_nothing_is_nothing_comes(self, tmp_path: Path) -> None:
        """A first owner gets no snapshot and keeps its files."""
        store = self.owner(tmp_path)
        (tmp_path / "database").mkdir()
        (tmp_path / "database/own").write_bytes(b"1")
        assert (store.newest, store.last_epoch) == (None, 0)
        assert store.fetch(tmp_path / "database") is None
        assert _content(tmp_path / "database") == {"own": b"1"}

    def test_what_was_put_comes_back_in_place_of_what_was_there(self, tmp_path: Path) -> None:
        """A fetch gives exactly the checkpoint's files; changes to them do not reach the store."""
        self.put(tmp_path, self.owner(tmp_path, 1), SnapshotPoint(1, 5))
        (tmp_path / "database").mkdir()
        (tmp_path / "database/old").write_bytes(b"1")
        for _ in range(2):
            assert self.owner(tmp_path).newest == SnapshotPoint(1, 5)
            assert self.fetched(tmp_path) == (SnapshotPoint(1, 5), _FILES)
            (tmp_path / "database/000008.sst").write_bytes(b"changed")
        assert self.owner(tmp_path, partition=4).newest is None

    def test_a_name_that_is_used_again_has_its_newest_content(self, tmp_path: Path) -> None:
        """This holds for tables, too: a number may be reused after a machine crashed."""
        for epoch, content in enumerate((b"one", b"two", b"2nd"), 1):
            files = {**_FILES, "000008.sst": content}
            self.put(tmp_path, self.owner(tmp_path, epoch), SnapshotPoint(epoch, 1), files)
            assert self.fetched(tmp_path) == (SnapshotPoint(epoch, 1), files)

    def test_files_that_are_there_travel_once_whoever_has_the_partition(
        self, tmp_path: Path
    ) -> None:
        """Files of a former owner are reused; unneeded files are deleted."""
        owner = self.owner(tmp_path, 1)
        for commits in (1, 2, 3):
            self.put(tmp_path, owner, SnapshotPoint(1, commits))
        later = self.owner(tmp_path, 2)
        later.fetch(tmp_path / "database")
        for commits in (4, 5):
            files = {**_FILES, "000010.sst": b"new"}
            self.put(tmp_path, later, SnapshotPoint(2, commits), files)
        names = self.reach(tmp_path / "shared").listed(_PARTITION)
        for name in ("000008.sst", "000010.sst", "2.owner"):
            assert sum(each.endswith(name) for each in names) == 1
        assert len(names) == len([*files, "manifest", "manifest", "claim"])
        assert self.fetched(tmp_path) == (SnapshotPoint(2, 5), files)

    def test_an_owner_that_was_cut_off_writes_nothing_that_counts(self, tmp_path: Path) -> None:
        """Its snapshots are refused; the snapshot that the new owner took over stays."""
        former = self.owner(tmp_path, 1)
        self.put(tmp_path, former, SnapshotPoint(1, 5))
        owner = self.owner(tmp_path, 2)
        with pytest.raises(EpochTakenError) as refused:
            self.put(tmp_path, former, SnapshotPoint(1, 900))
        assert refused.value.epoch == owner.last_epoch
        assert owner.fetch(tmp_path / "database") == SnapshotPoint(1, 5)
        self.put(tmp_path, owner, SnapshotPoint(2, 6), {"CURRENT": b"of the owner"})
        assert self.fetched(tmp_path) == (SnapshotPoint(2, 6), {"CURRENT": b"of the owner"})

    def test_a_damaged_snapshot_is_passed_over(self, tmp_path: Path) -> None:
        """The previous snapshot is used; without an intact one, an error is raised."""
        owner = self.owner(tmp_path, 9)
        self.put(tmp_path, owner, SnapshotPoint(9, 1), {"CURRENT": b"first"})
        self.put(tmp_path, owner, SnapshotPoint(9, 2), {"CURRENT": b"second"})
        store = self.reach(tmp_path / "shared")
        first, second = (
            next(name for name in store.listed(_PARTITION) if f"/{commits:020d}-" in name)
            for commits in (1, 2)
        )
        (tmp_path / "other").write_bytes(b"SECOND")
        store.put(second, tmp_path / "other")
        assert self.fetched(tmp_path) == (SnapshotPoint(9, 1), {"CURRENT": b"first"})
        store.delete([first])
        with pytest.raises(StoreCorruptedError):
            self.fetched(tmp_path)
        assert _content(tmp_path / "database") == {"CURRENT": b"first"}
        # the next snapshot repairs the store
        self.put(tmp_path, owner, SnapshotPoint(9, 3), {"CURRENT": b"third"})
        assert self.fetched(tmp_path) == (SnapshotPoint(9, 3), {"CURRENT": b"third"})

    def test_openings_are_known_whether_or_not_they_left_a_snapshot(self, tmp_path: Path) -> None:
        """The highest epoch is reported, and no lower one can be claimed afterwards."""
        for epoch in (1, 7 << 32):
            self.owner(tmp_path, epoch)
            assert self.owner(tmp_path).last_epoch == epoch
        for epoch in (3, 7 << 32):
            with pytest.raises(EpochTakenError) as refused:
                self.owner(tmp_path, epoch)
            assert refused.value.epoch == 7 << 32
        assert self.owner(tmp_path, partition=4).last_epoch == 0
        assert self.owner(tmp_path).newest is None

    def test_of_owners_that_come_at_once_each_has_an_epoch(self, tmp_path: Path) -> None:
        """Without a placement each gets another epoch; a placed epoch has one owner."""
        start = Barrier(_RACERS)

        def claim(epochs: range) -> int:
            made = self.owner(tmp_path)
            start.wait()
            try:
                return made.own(epochs)
            except EpochTakenError:
                return 0

        with ThreadPoolExecutor(_RACERS) as threads:
            claimed = sorted(threads.map(claim, [ANY_EPOCH] * _RACERS))
            assert len(set(claimed)) == _RACERS
            assert self.owner(tmp_path).last_epoch == claimed[-1]
            placed = sorted(threads.map(claim, [range(1_000, 1_001)] * _RACERS))
        assert placed == [0] * (_RACERS - 1) + [1_000]

    def test_owners_agree_on_whose_devices_they_are(self, tmp_path: Path) -> None:
        """The first owner sets the incarnation of a partition for good, before any snapshot."""
        for partition, own, first in ((3, "a", "a"), (3, "b", "a"), (4, "b", "b")):
            store = self.owner(tmp_path, partition=partition)
            assert store.incarnation(own * 16) == first * 16
        self.put(tmp_path, self.owner(tmp_path, 1), SnapshotPoint(1, 5))
        assert self.owner(tmp_path).incarnation("c" * 16) == "a" * 16


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
