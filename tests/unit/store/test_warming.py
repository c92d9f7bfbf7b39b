"""Warm copies: little is left to fetch, and what is near is never changed by a database."""

from threading import Event

import pytest

from tests.unit.store.test_snapshots import Counting, put, read, write
from walle_stream.errors import StoreUnreachableError
from walle_stream.store.snapshots import PartitionSnapshots
from walle_stream.store.warming import WarmCopies

ROWS = {b"\x10a\x00\x01": b"1" * 50_000}
MORE = {b"\x10b\x00\x01": b"2"}


class Fetching(Counting):
    """Knows what was fetched."""

    def __init__(self, folder):
        super().__init__(folder)
        self.fetched = []

    def get(self, name):
        if name.count("/") > 2:  # files lie below an opening
            self.fetched.append(name.rpartition("-")[2])
        return super().get(name)


@pytest.fixture
def objects(tmp_path):
    return Fetching(tmp_path / "objects")


@pytest.fixture
def here(objects, tmp_path):
    """The partition as another node sees it."""
    return PartitionSnapshots(objects, "p", 3, near=tmp_path / "03.warm")


@pytest.fixture
def database(objects, tmp_path):
    """A database of the owner, that has a snapshot; returns how to make the next one."""
    owner = PartitionSnapshots(objects, "p", 3)
    assert owner.own() == 1
    path = tmp_path / "owner"

    def commit(rows, commits):
        write(path, rows)
        put(owner, path, 1, commits)

    commit(ROWS, 1)
    return commit


def test_a_warm_copy_leaves_what_came_since_to_fetch(objects, here, database, tmp_path):
    here.warm()
    warm = set(objects.fetched)
    objects.fetched.clear()
    database(MORE, 2)
    assert here.own() == 2
    assert here.fetch(tmp_path / "03").commits == 2
    tables = [name for name in objects.fetched if name.endswith(".sst")]
    assert len(tables) == 1
    assert any(name.endswith(".sst") for name in warm)
    assert read(tmp_path / "03") == ROWS | MORE


def test_a_warm_copy_is_renewed_by_what_is_new_and_nothing_else_stays(
    objects, here, database, tmp_path
):
    here.warm()
    before = {path.name for path in (tmp_path / "03.warm").iterdir()}
    here.warm()
    assert len(objects.fetched) == len(before)
    database(MORE, 2)
    here.warm()
    here.fetch(tmp_path / "03")
    kept = {path.name for path in (tmp_path / "03.warm").iterdir()}
    assert kept & before
    assert kept - before
    assert len(list((tmp_path / "03").iterdir())) >= len(kept)


def test_a_database_writes_on_and_the_copy_stays_as_it_was(here, database, tmp_path):
    here.warm()
    kept = {path.name: path.read_bytes() for path in (tmp_path / "03.warm").iterdir()}
    here.own()
    here.fetch(tmp_path / "03")
    write(tmp_path / "03", MORE)
    assert {path.name: path.read_bytes() for path in (tmp_path / "03.warm").iterdir()} == kept
    here.forget_warm()
    assert read(tmp_path / "03") == ROWS | MORE


def test_without_a_snapshot_there_is_nothing_to_warm(objects, here, tmp_path):
    here.warm()
    assert objects.fetched == []
    assert not (tmp_path / "03.warm").exists()
    here.forget_warm()


class Copy:
    """A partition's snapshots, of which it is counted how often they were looked at."""

    def __init__(self, error=None):
        self.error, self.looked, self.is_gone = error, Event(), Event()

    def warm(self):
        self.looked.set()
        if self.error is not None:
            raise self.error

    def forget_warm(self):
        self.is_gone.set()


def test_copies_come_and_go_as_they_are_wanted():
    made = {1: Copy(), 2: Copy(StoreUnreachableError("away"))}
    copies = WarmCopies(made.get, 10.0)
    copies.keep({1, 2})
    assert all(each.looked.wait(10) for each in made.values())
    made[1].looked.clear()
    assert made[1].looked.wait(10)  # again
    assert copies.warm == {1}
    copies.keep(())
    assert made[1].is_gone.wait(10)
    copies.close()
    assert not made[2].is_gone.is_set()


def test_a_warm_copy_that_was_damaged_is_not_taken(objects, here, database, tmp_path):
    here.warm()
    table = max((tmp_path / "03.warm").iterdir(), key=lambda path: path.stat().st_size)
    content = table.read_bytes()
    for damaged in (content[:-1], content[:-1] + bytes([content[-1] ^ 1])):
        table.write_bytes(damaged)
        here.fetch(tmp_path / "03")
        assert read(tmp_path / "03") == ROWS
