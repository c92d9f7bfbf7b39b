"""What every store of rows owes to monitors; that of releases on PostgreSQL: ``testing.store_suite``."""

import sqlite3

import pytest

from walle_deploy.monitoring.snapshots import SqliteSnapshots
from walle_deploy.store.adapters import StoredRows
from walle_deploy.store.sqlite import SqliteStore
from walle_stream.errors import ConflictError, StoreError


@pytest.fixture(params=["own", "releases"])
def opened(request, tmp_path):
    stores = []

    def open_one():
        path = tmp_path / "rows.db"
        store = SqliteSnapshots(path) if request.param == "own" else SqliteStore(path)
        stores.append(store)
        return store if request.param == "own" else StoredRows(store)

    yield open_one
    for each in stores:
        each.close()


def test_rows_are_found_by_prefixes_and_by_keys(opened):
    store = opened()
    store.save({"a/1": b"1", "a/2": b"2", "b/1": b"3", "c": b"4"})
    store.save({"a/2": b"5"})
    assert store.load("a/") == {"a/1": b"1", "a/2": b"5"}
    assert store.load("a/2", "b/", "none/") == {"a/2": b"5", "b/1": b"3"}
    assert store.read({"a/1", "c", "a/"}) == {"a/1": b"1", "c": b"4"}
    assert len(store.load("")) == 4
    assert store.load() == store.read(()) == {}


def test_rows_are_written_only_onto_what_is_expected(opened):
    store, other = opened(), opened()
    store.save({"n": b"1"}, {"n": None})
    for stale in ({"n": None}, {"n": b"0"}, {"n": b"1", "m": b""}):
        with pytest.raises(ConflictError, match="changed by somebody else"):
            other.save({"n": b"2", "x": b"2"}, stale)
    assert other.load("") == {"n": b"1"}
    other.save({"n": b"", "x": b"2"}, {"n": b"1", "m": None})
    with pytest.raises(ConflictError):  # no row and an empty one are two
        store.save({"n": b"3"}, {"n": None})
    store.save({"n": b"3"}, {"n": b""})
    assert other.load("") == {"n": b"3", "x": b"2"}


def test_rows_are_deleted_with_what_is_written(opened):
    store = opened()
    many = {f"k/{n}": b"%d" % n for n in range(1_100)}
    store.save(many)
    assert store.read(many) == many
    store.save({**dict.fromkeys(many), "none": None, "x": b"1"}, many)
    assert store.load("") == {"x": b"1"}


def test_a_file_that_is_lost_is_said_and_nothing_hangs(tmp_path):
    with SqliteSnapshots(tmp_path / "rows.db") as store:
        with sqlite3.connect(tmp_path / "rows.db", autocommit=True) as database:
            database.execute("DROP TABLE snapshots")
        database.close()
        with pytest.raises(StoreError, match="cannot be used"):
            store.load("")
        with pytest.raises(StoreError, match="cannot be used"):
            store.save({"a": b"1"}, {"a": None})
        with sqlite3.connect(tmp_path / "rows.db", autocommit=True) as database:
            database.execute("CREATE TABLE snapshots (key TEXT PRIMARY KEY, value BLOB)")
        database.close()
        store.save({"a": b"1"}, {"a": None})
        assert store.read(["a"]) == {"a": b"1"}
