import os
import sqlite3
import subprocess
from contextlib import suppress

import pytest

from walle_deploy.store.opening import open_store
from walle_deploy.store.schema import SCHEMA_VERSION
from walle_deploy.store.sqlite import SqliteStore
from walle_deploy.testing.store_suite import ReleaseStoreSuite
from walle_stream.errors import IntegrityError, ServiceUnreachableError, StoreFullError


class TestSqliteStore(ReleaseStoreSuite):
    def make_store(self, folder):
        return SqliteStore(folder / "releases.db")


def test_readers_do_not_wait_for_a_writer(tmp_path):
    store, other = SqliteStore(tmp_path / "r.db"), SqliteStore(tmp_path / "r.db")
    with store.writing() as writing:
        writing.set_stable("shop/ipv", "v1")
        with other.reading() as reading:
            assert reading.stable() == {}
    with other.reading() as reading:
        assert reading.stable() == {"shop/ipv": "v1"}
    store.close()
    other.close()


@pytest.mark.parametrize(("more", "what"), [(1, "upgrade walle"), (-1, "begin a new store")])
def test_tables_of_another_version_are_refused(tmp_path, more, what):
    SqliteStore(tmp_path / "r.db").close()
    with sqlite3.connect(tmp_path / "r.db") as connection:
        connection.execute("UPDATE walle_head SET schema_version = ?", (SCHEMA_VERSION + more,))
    connection.close()
    with pytest.raises(IntegrityError, match=f"version {SCHEMA_VERSION + more}, .* {what}$"):
        SqliteStore(tmp_path / "r.db")


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "r.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(IntegrityError, match="not a database"):
        SqliteStore(tmp_path / "r.db")
    with pytest.raises(ServiceUnreachableError, match="unable to open"):
        SqliteStore(tmp_path / "none" / "r.db")


def test_a_store_is_not_made_where_it_should_be_there(tmp_path):
    with pytest.raises(ServiceUnreachableError, match="there is no release store"):
        open_store(str(tmp_path / "r.db"), make=False)
    assert not (tmp_path / "r.db").exists()


def test_an_altered_row_is_named(tmp_path):
    store = SqliteStore(tmp_path / "r.db")
    with sqlite3.connect(tmp_path / "r.db") as connection:
        connection.execute("INSERT INTO walle_versions VALUES ('shop/ipv', 'v1', 0, '{\"x\"')")
    connection.close()
    with store.reading() as reading, pytest.raises(IntegrityError, match="shop/ipv@v1"):
        reading.versions("shop/ipv")
    store.close()


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield disk
    subprocess.run(["umount", disk], check=True)


def fill(file):
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    with suppress(OSError):
        while True:
            os.write(descriptor, bytes(4_096))
    os.close(descriptor)


def test_a_full_disk_is_said_and_nothing_is_half_done(small_disk):
    store = SqliteStore(small_disk / "r.db")
    with store.writing() as writing:
        writing.set_stable("shop/ipv", "v1")
    fill(small_disk / "other")

    def write():
        with store.writing() as writing:
            writing.set_stable("shop/ipv", "v2")
            for number in range(200):
                writing.put_snapshot("k", f"n{number}", bytes(4_000))

    with pytest.raises(StoreFullError, match="the disk is full"):
        write()
    (small_disk / "other").unlink()
    with store.reading() as reading:
        assert (reading.stable(), reading.snapshot("k", "n0")) == ({"shop/ipv": "v1"}, None)
    store.close()
