"""Snapshots of databases: what is taken back is what was there, whoever writes meanwhile."""

import os
import re
from pathlib import Path
from threading import Lock

import pytest

from walle_stream.errors import (
    FormatVersionError,
    SpecFileError,
    StoreCorruptedError,
    StoreError,
    StoreFullError,
    StoreUnreachableError,
)
from walle_stream.store import snapshots
from walle_stream.store.objects import FolderObjects, open_objects
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import PartitionSnapshots, SnapshotPoint

ROWS = {b"\x10a\x00\x01": b"1", b"\x10b\x00\x01": b"2" * 5_000}
MIB = 2**20


class Counting(FolderObjects):
    """Knows how much went there, and fails where it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.names, self.moved = [], 0
        self.lock = Lock()  # several files travel at once
        self.failing = set()

    def put(self, name, source):
        self._fail("put")
        super().put(name, source)
        with self.lock:
            self.names.append(name.rpartition("-")[2])
            self.moved += source.stat().st_size

    def create(self, name, content):
        self._fail("create")
        self.moved += len(content)
        return super().create(name, content)

    def get(self, name):
        self._fail("get")
        return super().get(name)

    def delete(self, names):
        self._fail("delete")
        super().delete(names)

    def _fail(self, what):
        if what in self.failing:
            raise StoreUnreachableError("nobody answers")


def write(path: Path, rows: dict[bytes, bytes]) -> None:
    with PartitionStore.open(path) as store:
        transaction = store.begin()
        for key, value in rows.items():
            transaction.put(key, value)
        transaction.commit()


def read(path: Path) -> dict[bytes, bytes]:
    with PartitionStore.open(path, read_only=True) as store:
        return dict(store.scan(b"\x10"))


def put(made: PartitionSnapshots, path: Path, epoch: int, commits: int) -> None:
    copy = path.with_name(f"copy-{path.name}-{epoch}-{commits}")
    with PartitionStore.open(path) as store:
        store.checkpoint(copy)
    made.put(copy, SnapshotPoint(epoch, commits))


@pytest.fixture
def objects(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "shared")


@pytest.fixture
def owner(objects):
    def owner(epoch: int) -> PartitionSnapshots:
        made = PartitionSnapshots(objects, "shop", 3)
        if epoch:
            made.own(range(epoch, epoch + 1))
        return made

    return owner


def test_a_table_travels_once_also_across_owners(objects, owner, tmp_path):
    for epoch, machine in enumerate("abab", 1):
        made, path = owner(epoch), tmp_path / machine
        if epoch > 1:
            made.fetch(path)
        for commits in (1, 2):
            write(path, {b"\x10%d-%d\x00\x01" % (epoch, commits): os.urandom(1_000)})
            put(made, path, epoch, commits)
    made.fetch(tmp_path / "c")
    assert len(read(tmp_path / "c")) == 8
    tables = [name for name in objects.names if name.endswith(".sst")]
    assert len(tables) == len(set(tables)) >= 8


def test_an_unchanged_partition_moves_hardly_anything(objects, owner, tmp_path):
    write(tmp_path / "a", {b"\x10%d\x00\x01" % n: os.urandom(MIB) for n in range(8)})
    put(owner(1), tmp_path / "a", 1, 1)
    size = objects.moved
    assert size > 8 * MIB
    copy = tmp_path / "copy-a-1-1"
    for commits in (2, 3):  # in one opening: the counts of commits alone differ
        made = owner(commits)
        before = objects.moved
        made.put(copy, SnapshotPoint(commits, commits))
        assert objects.moved - before < size / 100
    owner(4).fetch(tmp_path / "b")
    made, before = owner(5), objects.moved
    made.fetch(tmp_path / "b")
    put(made, tmp_path / "b", 5, 3)  # opened elsewhere, which makes RocksDB's own files anew
    assert objects.moved - before < size / 100


def test_a_snapshot_that_was_not_finished_leaves_the_one_before_whole(objects, owner, tmp_path):
    made = owner(1)
    write(tmp_path / "a", ROWS)
    put(made, tmp_path / "a", 1, 5)
    write(tmp_path / "a", {b"\x10c\x00\x01": b"3"})
    for commits, step in enumerate(("put", "create"), 6):
        objects.failing = {step}
        with pytest.raises(StoreUnreachableError):
            put(made, tmp_path / "a", 1, commits)
    objects.failing = set()
    assert owner(0).fetch(tmp_path / "b") == SnapshotPoint(1, 5)
    assert read(tmp_path / "b") == ROWS
    objects.failing = {"delete"}  # it counts, and what it replaced stays for now
    with pytest.raises(StoreUnreachableError):
        put(made, tmp_path / "a", 1, 8)
    objects.failing = set()
    assert owner(0).newest == SnapshotPoint(1, 8)
    put(made, tmp_path / "a", 1, 9)
    points = [SnapshotPoint(1, 8), SnapshotPoint(1, 9)]
    assert made._list().points == points
    needed = {file.stored for point in points for file in made._read(point).files}
    assert len(objects.listed("shop")) == len(needed) + 2 + 1


def test_a_request_that_is_refused_by_its_own_success_counts(objects, owner, monkeypatch, tmp_path):
    create = FolderObjects.create
    monkeypatch.setattr(
        Counting, "create", lambda *arguments: create(*arguments) and create(*arguments)
    )
    write(tmp_path / "a", ROWS)
    made = owner(1)
    put(made, tmp_path / "a", 1, 1)
    put(made, tmp_path / "a", 1, 2)
    assert owner(0).fetch(tmp_path / "b") == SnapshotPoint(1, 2)
    assert made.own() == 2
    assert made.incarnation("a" * 16) == "a" * 16


def test_a_snapshot_that_is_replaced_while_it_is_fetched_is_fetched_anew(
    objects, owner, tmp_path, monkeypatch
):
    made = owner(1)
    write(tmp_path / "a", ROWS)
    put(made, tmp_path / "a", 1, 1)
    download = PartitionSnapshots._download

    def slow(self, manifest, target):
        monkeypatch.setattr(PartitionSnapshots, "_download", download)
        for commits in (2, 3, 4):
            put(made, tmp_path / "a", 1, commits)
        return download(self, manifest, target)

    monkeypatch.setattr(PartitionSnapshots, "_download", slow)
    assert owner(0).fetch(tmp_path / "b") == SnapshotPoint(1, 4)
    assert read(tmp_path / "b") == ROWS


def test_files_that_others_removed_are_uploaded_again(objects, owner, tmp_path):
    made = owner(1)
    write(tmp_path / "a", ROWS)
    put(made, tmp_path / "a", 1, 1)
    objects.delete([name for name in objects.listed("shop") if name.endswith(".sst")])
    put(made, tmp_path / "a", 1, 2)
    owner(0).fetch(tmp_path / "b")
    assert read(tmp_path / "b") == ROWS


def test_damage_is_named_and_what_is_there_stays(objects, owner, tmp_path):
    write(tmp_path / "a", ROWS)
    put(owner(1), tmp_path / "a", 1, 1)
    write(tmp_path / "b", {b"\x10old\x00\x01": b"x"})
    table = min((tmp_path / "shared").rglob("*.sst"))
    content = table.read_bytes()
    table.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StoreCorruptedError, match="was changed"):
        owner(0).fetch(tmp_path / "b")
    table.unlink()
    with pytest.raises(StoreCorruptedError, match="No such file"):
        owner(0).fetch(tmp_path / "b")
    assert read(tmp_path / "b") == {b"\x10old\x00\x01": b"x"}
    [manifest] = (tmp_path / "shared/shop/p-03").glob("*.json")
    whole = manifest.read_bytes()
    outside = re.sub(rb'"name":"[^"]+"', b'"name":"../../x"', whole, count=1)
    other = re.sub(rb'"commits":1', b'"commits":2', whole)
    for content in (b"{", b"{}", outside, other):
        assert content != whole
        manifest.write_bytes(content)
        with pytest.raises(StoreCorruptedError, match="is damaged"):
            owner(0).fetch(tmp_path / "b")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{1:020d}-{5:020d}-0123456789abcdef.json", "{}"),
        (f"{1:020d}-{5:020d}.json", '{"v":3,"pages":[]}'),
    ],
)
def test_snapshots_of_another_version_are_refused(owner, tmp_path, name, content):
    folder = tmp_path / "shared/shop/p-03"
    folder.mkdir(parents=True)
    (folder / name).write_text(content)
    with pytest.raises(FormatVersionError, match="another version of walle_stream"):
        owner(0).fetch(tmp_path / "b")


def test_a_folder_that_cannot_be_written_is_one_line(owner, tmp_path):
    (tmp_path / "shared").write_text("a file")
    made = owner(0)
    for call in (made.own, lambda: made.incarnation("a" * 16)):
        with pytest.raises(StoreError, match="a folder with free space to which every machine"):
            call()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_folder_is_one_line(owner, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: os.write(os.open("/dev/full", os.O_WRONLY), b"1"))
    with pytest.raises(StoreFullError, match="No space left"):
        owner(1)


def test_an_opening_waits_for_a_store_that_is_away(objects, owner, tmp_path, monkeypatch, caplog):
    write(tmp_path / "a", ROWS)
    put(owner(1), tmp_path / "a", 1, 1)
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            objects.failing = set()

    monkeypatch.setattr(snapshots.time, "sleep", sleep)
    objects.failing = {"create", "get"}
    made = owner(2)
    objects.failing = {"get"}
    waits.clear()
    made.fetch(tmp_path / "b")
    assert waits[:3] == [0.5, 1.0, 2.0]
    assert [record.message for record in caplog.records] == ["nobody answers: retrying"] * 2
    monkeypatch.setattr(snapshots, "_PATIENCE_MS", -1.0)
    objects.failing = {"create"}
    with pytest.raises(StoreUnreachableError):
        owner(3)


def test_a_restore_says_how_far_it_is(owner, tmp_path, monkeypatch, caplog):
    write(tmp_path / "a", {b"\x10%d\x00\x01" % n: os.urandom(MIB) for n in range(4)})
    put(owner(1), tmp_path / "a", 1, 1)
    monkeypatch.setattr(snapshots, "_TELL_MS", 0.0)
    owner(0).fetch(tmp_path / "b")
    assert f"{tmp_path}/shared/shop/p-03: 4 of 4 MB are downloaded" in caplog.messages


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/x",
        "s3://",
        "s3://key:secret@bucket/x",
        "file://host/x",
        "s3://b/?a=secret",
        "s3://b/a#x",
    ],
)
def test_what_is_no_place_is_refused_without_its_secrets(url):
    with pytest.raises(SpecFileError, match="object store: ") as refused:
        open_objects(url)
    assert "secret" not in str(refused.value)


def test_a_folder_may_be_a_url(tmp_path):
    assert open_objects(f"file://{tmp_path}/a%20b").place == f"{tmp_path}/a b"
    assert open_objects(str(tmp_path)).place == str(tmp_path)
