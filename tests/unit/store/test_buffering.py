from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from walle_stream import faults
from walle_stream.errors import TransactionStateError
from walle_stream.store.buffering import BufferingTable, FlushPolicy
from walle_stream.store.partition import PartitionStore
from walle_stream.store.transaction import Transaction

LAZY = FlushPolicy(max_rows=1_000_000, max_bytes=1 << 40, max_age_ms=1 << 60)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PartitionStore]:
    with PartitionStore.open(tmp_path / "store") as opened:
        yield opened


def bound(store: PartitionStore, **limits: int) -> tuple[BufferingTable, Transaction]:
    table, transaction = BufferingTable(msgspec.structs.replace(LAZY, **limits)), store.begin()
    table.bind(transaction)
    return table, transaction


def test_rows_written_again_collapse(store: PartitionStore) -> None:
    table, transaction = bound(store)
    for number in range(1_000):
        table.put_rows({b"k": b"%d" % number}, number)
    assert transaction.row_count == 0
    transaction.commit()
    assert (store.get(b"k"), transaction.row_count) == (b"999", 0)


def test_none_deletes(store: PartitionStore) -> None:
    with store.begin() as transaction:
        transaction.put(b"k", b"v")
    table, transaction = bound(store)
    table.put_rows({b"k": None, b"new": None}, 0)
    transaction.commit()
    assert (store.get(b"k"), store.get(b"new")) == (None, None)


def test_flush_on_row_count(store: PartitionStore) -> None:
    table, transaction = bound(store, max_rows=3)
    for key in (b"a", b"a", b"b", b"b"):
        table.put_rows({key: b"v"}, 0)
    assert transaction.row_count == 0
    table.put_rows({b"c": b"v"}, 0)
    assert transaction.row_count == 3


def test_flush_on_bytes_counts_a_row_written_again_once(store: PartitionStore) -> None:
    table, transaction = bound(store, max_bytes=100)
    for value in (bytes(50), bytes(90), bytes(10), bytes(90), None, bytes(90)):
        table.put_rows({b"key": value}, 0)
    assert transaction.row_count == 0
    table.put_rows({b"other": bytes(2)}, 0)
    assert transaction.row_count == 2


def test_flush_on_age_of_the_oldest_row(store: PartitionStore) -> None:
    table, transaction = bound(store, max_age_ms=100)
    table.put_rows({b"a": b"1"}, 1_000)
    table.put_rows({b"a": b"2"}, 1_099)
    assert transaction.row_count == 0
    table.put_rows({b"b": b"1"}, 1_100)
    assert transaction.row_count == 2
    table.put_rows({b"c": b"1"}, 1_100)
    table.put_rows({}, 1_199)
    assert transaction.row_count == 2


def test_flushed_rows_are_in_no_store_before_the_commit(store: PartitionStore) -> None:
    table, transaction = bound(store, max_rows=1)
    table.put_rows({b"k": b"v"}, 0)
    assert (transaction.get(b"k"), store.get(b"k")) == (b"v", None)
    transaction.drop()
    assert store.get(b"k") is None


def test_drop_forgets_buffered_rows(store: PartitionStore) -> None:
    table, transaction = bound(store)
    table.put_rows({b"k": b"v"}, 0)
    transaction.drop()
    with store.begin() as transaction:
        table.bind(transaction)
        table.put_rows({b"other": b"v"}, 0)
    assert (store.get(b"k"), store.get(b"other")) == (None, b"v")


def test_table_goes_on_with_the_next_transaction(store: PartitionStore) -> None:
    table = BufferingTable(LAZY)
    for number in range(3):
        transaction = store.begin()
        table.bind(transaction)
        table.bind(transaction)
        table.put_rows({b"k%d" % number: b"v"}, 0)
        transaction.commit()
    assert [key for key, _ in store.scan(b"k")] == [b"k0", b"k1", b"k2"]


def test_flush_without_a_transaction_is_refused_and_loses_nothing(store: PartitionStore) -> None:
    table = BufferingTable(LAZY)
    table.put_rows({b"k": b"v"}, 0)
    with pytest.raises(TransactionStateError, match="bind"):
        table.flush()
    with store.begin() as transaction:
        table.bind(transaction)
    assert store.get(b"k") == b"v"


def test_crash_point_stands_before_a_flush_that_moves_rows(
    store: PartitionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = bound(store)
    seen: list[str] = []
    monkeypatch.setattr(faults._faults, "is_on", True)
    monkeypatch.setattr(faults._faults, "reach", seen.append)
    table.flush()
    table.put_rows({b"k": b"v"}, 0)
    table.flush()
    table.flush()
    assert seen == ["flush.before"]
