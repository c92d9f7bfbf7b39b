import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from walle_stream.errors import (
    FormatVersionError,
    StoreCorruptedError,
    StoreError,
    StoreLockedError,
    StoreMissingError,
    TransactionStateError,
)
from walle_stream.store import keys, partition, rocks
from walle_stream.store.partition import PartitionStore


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "partitions" / "00"


def write(place: Path, rows: Mapping[bytes, bytes | None]) -> None:
    with PartitionStore.open(place) as store, store.begin() as transaction:
        transaction.put_rows(rows)


def options_in(place: Path) -> str:
    newest = max(place.glob("OPTIONS-*"), key=lambda file: file.name)
    return newest.read_text() + (place / "LOG").read_text()


def test_options_take_effect_on_a_second_opening_too(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (5 << 20, 3 << 20):
        monkeypatch.setattr(rocks, "WRITE_BUFFER_BYTES", size)
        with PartitionStore.open(place):
            said = options_in(place)
        assert f"write_buffer_size={size}\n" in said
        assert "max_open_files=64\n" in said
        assert "filter_policy=bloomfilter" in said
        assert "level0_file_num_compaction_trigger=8\n" in said
        assert f"capacity : {64 << 20}\n" in said


def test_default_compression_is_lz4_and_write_buffers_are_32_mb(place: Path) -> None:
    with PartitionStore.open(place), PartitionStore.open(place.with_name("01")):
        said = options_in(place)
    assert "compression_per_level=kNoCompression:kLZ4Compression:" in said
    assert f"write_buffer_size={32 << 20}\n" in said


def test_databases_share_one_block_cache(place: Path) -> None:
    def cache_in(folder: Path) -> set[str]:
        lines = (folder / "LOG").read_text().splitlines()
        return {line.split()[-1] for line in lines if " block_cache: 0x" in line}

    with PartitionStore.open(place), PartitionStore.open(place.with_name("01")):
        pass
    assert len(cache_in(place) | cache_in(place.with_name("01"))) == 1


def test_small_write_buffers_are_flushed_by_themselves(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rocks, "WRITE_BUFFER_BYTES", 64 << 10)
    with PartitionStore.open(place) as store:
        for number in range(20):
            with store.begin() as transaction:
                transaction.put(b"k%d" % number, bytes(16 << 10))
        assert len(list(store.scan(b"k"))) == 20


@pytest.mark.parametrize("version", [b"2", b"0", b"", b"x\xff"])
def test_other_layout_version_is_refused(place: Path, version: bytes) -> None:
    write(place, {keys.FORMAT_KEY: version})
    for read_only in (False, True):
        with pytest.raises(FormatVersionError, match="this version reads 1"):
            PartitionStore.open(place, read_only=read_only)


@pytest.mark.parametrize(
    ("versions", "table"),
    [(b'{"state":2}', "state"), (None, "zzz")],
)
def test_other_table_version_is_refused_by_name(
    place: Path, versions: bytes | None, table: str
) -> None:
    with PartitionStore.open(place) as store:
        row = store.get(keys.TABLES_KEY) or b""
    write(place, {keys.TABLES_KEY: versions or row[:-1] + b',"zzz":1}'})
    with pytest.raises(FormatVersionError, match=f"'{table}'"):
        PartitionStore.open(place)


def test_a_table_that_is_new_in_this_version_is_added(place: Path) -> None:
    write(place, {keys.TABLES_KEY: b'{"state":1}'})
    with PartitionStore.open(place, read_only=True) as store:
        assert store.get(keys.TABLES_KEY) == b'{"state":1}'
    with PartitionStore.open(place) as store:
        assert b'"call":2' in (store.get(keys.TABLES_KEY) or b"")


def test_damaged_table_versions_are_corruption(place: Path) -> None:
    write(place, {keys.TABLES_KEY: b"{"})
    with pytest.raises(StoreCorruptedError, match="table versions"):
        PartitionStore.open(place)


def test_refused_opening_leaves_no_lock(place: Path) -> None:
    write(place, {keys.TABLES_KEY: b"{"})
    for _ in range(2):
        with pytest.raises(StoreCorruptedError):
            PartitionStore.open(place)


def test_rows_without_a_format_are_no_partition(place: Path) -> None:
    write(place, {keys.FORMAT_KEY: None, keys.HEAD_KEY: b"head"})
    with pytest.raises(StoreCorruptedError, match="holds rows but no format"):
        PartitionStore.open(place)


def test_database_killed_before_its_first_row_is_opened(place: Path) -> None:
    write(place, {keys.FORMAT_KEY: None, keys.TABLES_KEY: None})
    with PartitionStore.open(place, read_only=True) as store:
        assert store.get(keys.HEAD_KEY) is None
    with PartitionStore.open(place) as store:
        assert store.get(keys.FORMAT_KEY) == b"1"


def test_lost_table_file_is_corruption(place: Path) -> None:
    write(place, {b"k": b"v"})
    for file in place.glob("*.sst"):
        file.unlink()
    with pytest.raises(StoreCorruptedError, match="damaged"):
        PartitionStore.open(place)


def test_overwritten_table_file_is_corruption(place: Path) -> None:
    write(place, {b"k%d" % number: bytes(50) for number in range(100)})
    for file in place.glob("*.sst"):
        file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(StoreCorruptedError, match="damaged"):
        PartitionStore.open(place)


@pytest.mark.parametrize("count", [100, 5_000])  # one part of a scan, and several
def test_a_scan_over_a_damaged_block_does_not_just_end(place: Path, count: int) -> None:
    write(place, {b"k%06d" % number: os.urandom(100) for number in range(count)})
    [file] = place.glob("*.sst")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with PartitionStore.open(place) as store:
        with pytest.raises(StoreCorruptedError) as caught:
            list(store.scan(b"k"))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["", "{"])
def test_half_written_binding_file_does_no_harm(place: Path, content: str) -> None:
    write(place, {b"k": b"v"})
    (place / "rocksdict-config.json").write_text(content)
    with PartitionStore.open(place) as store:
        assert store.get(b"k") == b"v"


def test_folder_without_a_database_is_missing_to_a_reader(place: Path) -> None:
    place.mkdir(parents=True)
    with pytest.raises(StoreMissingError):
        PartitionStore.open(place, read_only=True)
    assert list(place.iterdir()) == []


def test_path_that_is_a_file_is_named(place: Path) -> None:
    place.parent.mkdir()
    place.write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        PartitionStore.open(place)


def test_sync_is_asked_for(place: Path) -> None:
    with PartitionStore.open(place, sync_ms=0.0) as store:
        with store.begin() as transaction:
            transaction.put(b"k", b"v")
        store.durability.wait()
        assert store.durability.durable() == store.durability.written
        assert store.durability.flushes >= 1
    with PartitionStore.open(place) as store:
        assert store.get(b"k") == b"v"
        assert not store.durability.is_behind


def test_value_that_is_no_bytes_is_a_value_error_and_the_store_goes_on(place: Path) -> None:
    with PartitionStore.open(place) as store:
        transaction = store.begin()
        transaction.put(b"a", b"v")
        transaction.put(b"b", 5)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="bytes"):
            transaction.commit()
        store.begin().commit()
        assert store.get(b"a") is None


def test_scan_across_chunk_borders_has_every_row_once(place: Path) -> None:
    chunk = partition._CHUNK_ROWS
    for count in (chunk - 1, chunk, chunk + 1, 2 * chunk):
        rows = {b"k%06d" % number: b"%d" % number for number in range(count)}
        folder = place.with_name(str(count))
        write(folder, rows)
        with PartitionStore.open(folder) as store:
            assert dict(store.scan(b"k")) == rows
            assert store._scans == {}


def test_scan_left_early_is_let_go(place: Path) -> None:
    with PartitionStore.open(place) as store:
        with store.begin() as transaction:
            transaction.put_rows({b"k%06d" % number: b"" for number in range(1_000)})
        scan = store.scan(b"k")
        next(scan)
        assert len(store._scans) == 1
        del scan
        assert store._scans == {}


def test_bound_of_a_scan_outlives_the_memory_around_it(place: Path) -> None:
    # rocksdict frees the bound with the read options; they must live as long as the scan
    rows = {b"k%06d" % number: b"old" for number in range(1_500)}
    with PartitionStore.open(place) as store:
        for _ in range(5):
            with store.begin() as transaction:
                transaction.put_rows(rows)
            scan = store.scan(b"k")
            next(scan)
            with store.begin() as transaction:
                transaction.put_rows(dict.fromkeys(rows, b"new"))
            assert sum(1 for _ in scan) == 1_499


def test_close_that_cannot_flush_warns_and_loses_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = PartitionStore.open(place)
    with store.begin() as transaction:
        transaction.put(b"k", b"v")
    database = store._database

    class Refusing:
        def close(self) -> None:
            database.close()
            raise Exception("IO error: No space left on device: x")  # noqa: TRY002 - as rocksdict does

    monkeypatch.setattr(store, "_database", Refusing())
    with caplog.at_level(logging.INFO):
        store.close()
    assert "nothing is lost" in caplog.text
    with PartitionStore.open(place) as store:
        assert store.get(b"k") == b"v"


def test_second_open_transaction_names_the_database(place: Path) -> None:
    with PartitionStore.open(place) as store:
        store.begin()
        with pytest.raises(TransactionStateError, match="partitions/00"):
            store.begin()


def test_opening_waits_for_an_owner_that_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "p"
    owner = PartitionStore.open(path)
    with pytest.raises(StoreLockedError):
        PartitionStore.open(path)
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(PartitionStore.open, path, lock_timeout_s=60.0)
        owner.close()
        opening.result(60.0).close()
