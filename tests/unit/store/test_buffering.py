from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from walle_stream import faults
from walle_stream.errors import TransactionStateError
from walle_stream.store.buffering import BufferingTable, FlushCause, FlushPolicy, RowCodec
from walle_stream.store.partition import PartitionStore

LAZY = FlushPolicy(max_rows=1_000_000, max_bytes=1 << 40, max_age_ms=1 << 60)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartitionStore]:
    with PartitionStore.open(tmp_path / "store") as opened:
        yield opened


def counting_codec(encoded: list[int]) -> RowCodec[int]:
    def encode(value: int) -> bytes:
        encoded.append(value)
        return msgspec.json.encode(value)

    return RowCodec(encode, msgspec.json.Decoder(int).decode, lambda _value: 8)


def only[V](table: BufferingTable[V], cause: FlushCause, rows: int) -> bool:
    counts = {name: count for name, count in table.flush_counts.items() if count}
    return counts == {cause: 1} and table.flushed_rows == rows


def test_rows_written_again_collapse_and_are_encoded_once(store: PartitionStore) -> None:
    encoded: list[int] = []
    table = BufferingTable(store, LAZY, counting_codec(encoded))
    transaction = store.begin()
    table.bind(transaction)
    for number in range(1_000):
        table.put(b"k", number)
    assert (encoded, transaction.row_count) == ([], 0)
    transaction.commit()
    assert (encoded, store.get(b"k")) == ([999], b"999")
    assert only(table, FlushCause.COMMIT, 1)


def test_reads_see_buffered_flushed_and_committed_rows(store: PartitionStore) -> None:
    table = BufferingTable(store, LAZY, counting_codec([]))
    with store.begin() as transaction:
        table.bind(transaction)
        table.put(b"committed", 1)
        table.put(b"deleted", 1)
    transaction = store.begin()
    table.bind(transaction)
    table.put(b"flushed", 2)
    table.delete(b"deleted")
    table.flush()
    table.put(b"buffered", 3)
    names = (b"committed", b"flushed", b"buffered", b"deleted", b"never")
    assert [table.get(name) for name in names] == [1, 2, 3, None, None]
    assert store.get(b"flushed") is None


def test_scan_flushes_first_and_yields_values_in_order(store: PartitionStore) -> None:
    table = BufferingTable(store, LAZY, counting_codec([]))
    with store.begin() as transaction:
        table.bind(transaction)
        table.put(b"t2", 2)
        table.put(b"t4", 4)
    table = BufferingTable(store, LAZY, counting_codec([]))
    table.bind(store.begin())
    table.put(b"t3", 3)
    table.put(b"t1", 1)
    table.put(b"u", 9)
    table.delete(b"t2")
    assert list(table.scan(b"t")) == [(b"t1", 1), (b"t3", 3), (b"t4", 4)]
    assert only(table, FlushCause.READ, 4)


def test_flush_on_row_count(store: PartitionStore) -> None:
    table = BufferingTable(store, msgspec.structs.replace(LAZY, max_rows=3))
    transaction = store.begin()
    table.bind(transaction)
    for key in (b"a", b"a", b"b", b"b"):
        table.put(key, b"v")
    assert transaction.row_count == 0
    table.put(b"c", b"v")
    assert transaction.row_count == 3
    assert only(table, FlushCause.ROWS, 3)


def test_flush_on_bytes_counts_a_row_written_again_once(store: PartitionStore) -> None:
    table = BufferingTable(store, msgspec.structs.replace(LAZY, max_bytes=100))
    transaction = store.begin()
    table.bind(transaction)
    for size in (50, 90, 10, 90):
        table.put(b"key", bytes(size))
    table.delete(b"key")
    table.put(b"key", bytes(90))
    assert transaction.row_count == 0
    table.put(b"other", bytes(2))
    assert only(table, FlushCause.BYTES, 2)


@pytest.mark.parametrize("last", ["put", "advance"])
def test_flush_on_age_of_the_oldest_row(store: PartitionStore, last: str) -> None:
    table = BufferingTable(store, msgspec.structs.replace(LAZY, max_age_ms=100))
    table.bind(store.begin())
    table.advance(1_000)
    table.put(b"a", b"1")
    table.put(b"a", b"2", now_ms=1_099)
    assert table.flushed_rows == 0
    if last == "put":
        table.put(b"b", b"1", now_ms=1_100)
    else:
        table.advance(1_100)
    assert only(table, FlushCause.AGE, 2 if last == "put" else 1)
    table.put(b"c", b"1")
    table.advance(1_199)
    assert table.flushed_rows == (2 if last == "put" else 1)


def test_flushed_rows_are_in_no_store_before_the_commit(store: PartitionStore) -> None:
    table = BufferingTable(store, msgspec.structs.replace(LAZY, max_rows=1))
    transaction = store.begin()
    table.bind(transaction)
    table.put(b"k", b"v")
    assert (transaction.get(b"k"), store.get(b"k")) == (b"v", None)
    transaction.drop()
    assert (table.get(b"k"), store.get(b"k")) == (None, None)


def test_drop_forgets_buffered_rows(store: PartitionStore) -> None:
    table = BufferingTable(store, LAZY)
    transaction = store.begin()
    table.bind(transaction)
    table.put(b"k", b"v")
    transaction.drop()
    assert table.get(b"k") is None
    with store.begin() as transaction:
        table.bind(transaction)
        table.put(b"other", b"v")
    assert store.get(b"k") is None


def test_table_goes_on_with_the_next_transaction(store: PartitionStore) -> None:
    table = BufferingTable(store, LAZY)
    for number in range(3):
        transaction = store.begin()
        table.bind(transaction)
        table.bind(transaction)
        table.put(b"k%d" % number, b"v")
        transaction.commit()
    assert [key for key, _ in store.scan(b"k")] == [b"k0", b"k1", b"k2"]


def test_flush_without_a_transaction_is_refused_and_loses_nothing(store: PartitionStore) -> None:
    table = BufferingTable(store, LAZY)
    table.put(b"k", b"v")
    uses: list[Callable[[], object]] = [table.flush, lambda: table.scan(b"k")]
    for use in uses:
        with pytest.raises(TransactionStateError, match="bind"):
            use()
    assert table.get(b"k") == b"v"


def test_value_that_cannot_be_encoded_moves_no_row(store: PartitionStore) -> None:
    codec: RowCodec[object] = RowCodec(msgspec.json.encode, msgspec.json.decode, lambda _value: 1)
    table = BufferingTable(store, LAZY, codec)
    transaction = store.begin()
    table.bind(transaction)
    table.put(b"a", 1)
    table.put(b"b", object())
    with pytest.raises(TypeError):
        table.flush()
    assert (transaction.row_count, table.get(b"a")) == (0, 1)


def test_crash_point_stands_before_a_flush_that_moves_rows(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = BufferingTable(store, LAZY)
    table.bind(store.begin())
    seen: list[str] = []
    monkeypatch.setattr(faults._faults, "is_on", True)
    monkeypatch.setattr(faults._faults, "reach", seen.append)
    table.flush()
    table.put(b"k", b"v")
    table.flush()
    table.flush()
    assert seen == ["flush.before"]


def test_many_rows_at_once_are_those_one_by_one(store: PartitionStore) -> None:
    policy = FlushPolicy(max_rows=4, max_bytes=60, max_age_ms=100)
    steps: list[tuple[dict[bytes, bytes | None], int]] = [
        ({b"a": b"1", b"b": b"22"}, 0),
        ({b"a": b"333", b"c": None}, 10),
        ({b"d": b"x" * 50}, 20),
        ({b"e": b"5"}, 30),
        ({}, 120),
        ({b"f": b"6"}, 200),
    ]
    tables = []
    for at_once in (True, False):
        table = BufferingTable(store, policy)
        transaction = store.begin()
        table.bind(transaction)
        for rows, now_ms in steps:
            if at_once:
                table.put_rows(rows, now_ms)
                continue
            for key, value in rows.items():
                table.put(key, value, now_ms)
            if not rows:
                table.advance(now_ms)
        tables.append(
            (table.flush_counts, table.flushed_rows, [table.get(bytes((k,))) for k in b"abcdef"])
        )
        transaction.drop()
    assert tables[0] == tables[1]
    assert tables[0][0][FlushCause.AGE]
