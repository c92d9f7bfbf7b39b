from collections.abc import Mapping

import pytest

from walle_stream import faults
from walle_stream.errors import StoreFullError, TransactionStateError
from walle_stream.store.transaction import Transaction, TransactionState, prefix_end


class Rows(dict[bytes, bytes | None]):
    """A store of the fewest lines: what a transaction writes, and how often."""

    def __init__(self) -> None:
        self.writes = 0
        self.refusal: Exception | None = None

    def write_rows(self, rows: Mapping[bytes, bytes | None]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.writes += 1
        self.update(rows)


class Table:
    def __init__(self, transaction: Transaction, failure: Exception | None = None) -> None:
        self.transaction = transaction
        self.failure = failure
        self.calls: list[str] = []
        transaction.join(self)

    def flush(self) -> None:
        self.calls.append("flush")
        if self.failure is not None:
            raise self.failure
        self.transaction.put(b"table", b"row")

    def mark_committed(self) -> None:
        self.calls.append("committed")

    def discard(self) -> None:
        self.calls.append("discard")


def test_commit_is_one_write() -> None:
    store = Rows()
    transaction = Transaction(store)
    for number in range(100):
        transaction.put(b"k%d" % number, b"v")
    transaction.delete(b"k0")
    assert transaction.row_count == 100
    transaction.commit()
    assert (store.writes, len(store), store[b"k0"]) == (1, 100, None)
    assert transaction.state is TransactionState.COMMITTED


def test_empty_commit_writes_nothing() -> None:
    store = Rows()
    Transaction(store).commit()
    assert store.writes == 0


def test_tables_flush_into_the_same_write_and_learn_the_commit() -> None:
    store = Rows()
    transaction = Transaction(store)
    table = Table(transaction)
    transaction.join(table)
    transaction.commit()
    assert table.calls == ["flush", "committed"]
    assert (store.writes, store[b"table"]) == (1, b"row")


def test_refused_commit_drops_the_transaction_and_its_tables() -> None:
    store = Rows()
    store.refusal = StoreFullError("full")
    transaction = Transaction(store)
    table = Table(transaction)
    with pytest.raises(StoreFullError):
        transaction.commit()
    assert table.calls == ["flush", "discard"]
    assert transaction.state is TransactionState.DROPPED
    with pytest.raises(TransactionStateError, match="dropped"):
        transaction.commit()


def test_table_that_cannot_flush_stops_the_commit() -> None:
    store = Rows()
    transaction = Transaction(store)
    transaction.put(b"k", b"v")
    Table(transaction, failure=ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        transaction.commit()
    assert (store.writes, transaction.state) == (0, TransactionState.DROPPED)


def test_crash_points_stand_around_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Rows()
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(faults._faults, "is_on", True)
    monkeypatch.setattr(faults._faults, "reach", lambda name: seen.append((name, store.writes)))
    transaction = Transaction(store)
    transaction.put(b"k", b"v")
    transaction.commit()
    assert seen == [("commit.before", 0), ("commit.after", 1)]


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a", b"b"), (b"a\x00", b"a\x01"), (b"a\xff", b"b"), (b"\x00\xff\xff", b"\x01")],
)
def test_prefix_end_is_the_first_key_behind(prefix: bytes, end: bytes) -> None:
    assert prefix_end(prefix) == end
