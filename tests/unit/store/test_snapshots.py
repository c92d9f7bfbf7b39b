"""Snapshots in a folder: what is taken back is what was there, whoever writes meanwhile."""

from pathlib import Path

import pytest

from walle_stream.errors import StoreCorruptedError, StoreError
from walle_stream.ports import SnapshotPoint
from walle_stream.store import snapshots
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import FolderSnapshots, line_of

ROWS = {b"\x10a\x00\x01": b"1", b"\x10b\x00\x01": b"2" * 5_000}


def write(path: Path, rows: dict[bytes, bytes]) -> None:
    with PartitionStore.open(path) as store:
        transaction = store.begin()
        for key, value in rows.items():
            transaction.put(key, value)
        transaction.commit()


def read(path: Path) -> dict[bytes, bytes]:
    with PartitionStore.open(path, read_only=True) as store:
        return dict(store.scan(b"\x10"))


def put(made: FolderSnapshots, path: Path, place: SnapshotPoint) -> None:
    copy = path.with_name(f"copy-{place.epoch}-{place.commits}")
    with PartitionStore.open(path) as store:
        store.checkpoint(copy)
    made.put(copy, place, line_of(path))


@pytest.fixture
def made(tmp_path: Path) -> FolderSnapshots:
    return FolderSnapshots(tmp_path / "shared", 3)


def stored(tmp_path: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in (tmp_path / "shared/p-03").glob(pattern))


def test_a_fetched_database_has_a_line_of_its_own(made: FolderSnapshots, tmp_path: Path) -> None:
    write(tmp_path / "a", ROWS)
    put(made, tmp_path / "a", SnapshotPoint(1, 5))
    made.fetch(tmp_path / "b")
    assert read(tmp_path / "b") == ROWS
    assert line_of(tmp_path / "b") != line_of(tmp_path / "a")


def test_a_table_travels_once_and_what_is_replaced_goes(
    made: FolderSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = []
    copy = snapshots._copy

    def counted(source: Path, target: Path) -> str:
        copied.append(source.name)
        return copy(source, target)

    monkeypatch.setattr(snapshots, "_copy", counted)
    for commits in range(1, 6):
        write(tmp_path / "a", {b"\x10%d\x00\x01" % commits: b"x" * 1_000})
        put(made, tmp_path / "a", SnapshotPoint(1, commits))
    tables = [name for name in copied if name.endswith(".sst")]
    assert len(tables) == len(set(tables))
    # in another process nothing is remembered, and still nothing travels again
    put(FolderSnapshots(tmp_path / "shared", 3), tmp_path / "a", SnapshotPoint(1, 6))
    again = [name for name in copied if name.endswith(".sst")]
    assert len(again) == len(set(again))
    assert len(stored(tmp_path, "*.json")) == 2
    assert len(stored(tmp_path, "*/*CURRENT")) == 2
    made.fetch(tmp_path / "b")
    assert len(read(tmp_path / "b")) == 5


def test_the_highest_epoch_counts_however_much_a_former_owner_writes(
    made: FolderSnapshots, tmp_path: Path
) -> None:
    write(tmp_path / "a", ROWS)
    put(made, tmp_path / "a", SnapshotPoint(1, 5))
    made.fetch(tmp_path / "b")
    write(tmp_path / "b", {b"\x10new\x00\x01": b"4"})
    put(made, tmp_path / "b", SnapshotPoint(2, 6))
    # the former owner was only cut off
    write(tmp_path / "a", {b"\x10zombie\x00\x01": b"5"})
    put(made, tmp_path / "a", SnapshotPoint(1, 900))
    assert made.newest == SnapshotPoint(2, 6)
    made.fetch(tmp_path / "c")
    assert b"\x10new\x00\x01" in read(tmp_path / "c")
    assert b"\x10zombie\x00\x01" not in read(tmp_path / "c")
    # the next one of the owner clears up
    put(made, tmp_path / "b", SnapshotPoint(2, 7))
    assert not stored(tmp_path, f"{line_of(tmp_path / 'a')}*")
    assert len(stored(tmp_path, "*.json")) == 2


def test_a_snapshot_that_was_not_finished_leaves_the_one_before_whole(
    made: FolderSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", ROWS)
    put(made, tmp_path / "a", SnapshotPoint(1, 5))
    write(tmp_path / "a", {b"\x10c\x00\x01": b"3"})

    def die(path: Path, content: bytes) -> None:
        raise OSError(f"{path} with {len(content)} bytes: the machine died")

    # opened once more, and nothing was committed: the same count of commits
    monkeypatch.setattr(snapshots, "put_file", die)
    with pytest.raises(StoreError, match="the machine died"):
        put(made, tmp_path / "a", SnapshotPoint(2, 5))
    # and a table of another content under the same name
    copy = tmp_path / "copy-1-5"
    for each in copy.glob("*.sst"):
        (copy / "new").write_bytes(each.read_bytes()[::-1])
        (copy / "new").rename(each)
    with pytest.raises(StoreError, match="the machine died"):
        FolderSnapshots(tmp_path / "shared", 3).put(
            copy, SnapshotPoint(3, 5), line_of(tmp_path / "a")
        )
    monkeypatch.undo()
    assert made.fetch(tmp_path / "b") == SnapshotPoint(1, 5)
    assert read(tmp_path / "b") == ROWS


def test_a_snapshot_that_is_replaced_while_it_is_fetched_is_fetched_anew(
    made: FolderSnapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a", ROWS)
    put(made, tmp_path / "a", SnapshotPoint(1, 1))
    fetch = FolderSnapshots._fetch

    def slow(self: FolderSnapshots, manifest: snapshots._Manifest, target: Path) -> SnapshotPoint:
        monkeypatch.setattr(FolderSnapshots, "_fetch", fetch)
        for commits in (2, 3, 4):
            put(made, tmp_path / "a", SnapshotPoint(1, commits))
        return fetch(self, manifest, target)

    monkeypatch.setattr(FolderSnapshots, "_fetch", slow)
    assert made.fetch(tmp_path / "b") == SnapshotPoint(1, 4)
    assert read(tmp_path / "b") == ROWS


def test_damage_is_named_and_what_is_there_stays(made: FolderSnapshots, tmp_path: Path) -> None:
    write(tmp_path / "a", ROWS)
    put(made, tmp_path / "a", SnapshotPoint(1, 1))
    write(tmp_path / "b", {b"\x10old\x00\x01": b"x"})
    table = min((tmp_path / "shared").rglob("*.sst"))
    content = table.read_bytes()
    table.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreCorruptedError, match="was altered"):
        made.fetch(tmp_path / "b")
    table.unlink()
    with pytest.raises(StoreError, match="lacks a file"):
        made.fetch(tmp_path / "b")
    assert read(tmp_path / "b") == {b"\x10old\x00\x01": b"x"}
    [manifest] = (tmp_path / "shared/p-03").glob("*.json")
    manifest.write_bytes(b"{")
    with pytest.raises(StoreCorruptedError, match="is damaged"):
        made.fetch(tmp_path / "b")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file")
    write(tmp_path / "a", ROWS)
    with pytest.raises(StoreError, match=r"spec\.state\.snapshots"):
        put(FolderSnapshots(tmp_path / "shared", 3), tmp_path / "a", SnapshotPoint(1, 1))


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "shared").write_text("a file")
    with pytest.raises(StoreError, match="every machine may write"):
        FolderSnapshots(tmp_path / "shared", 3).incarnation("a" * 16)
