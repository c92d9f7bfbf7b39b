"""Conformance suite for stores, as transactions and readers use them.

Subclass ``StoreSuite`` in a test file and implement ``open_store``; pytest then runs every test
below. The suite needs only pytest.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from walle_stream.errors import (
    StoreError,
    StoreLockedError,
    StoreMissingError,
    TransactionStateError,
)
from walle_stream.store.transaction import Transaction, TransactionState

MANY_ROWS = 1_500
"""Number of rows that exceeds any read-ahead of a store."""


class Store(Protocol):
    """Interface of the tested stores."""

    def get(self, key: bytes) -> bytes | None:
        """Return the committed value of a key."""

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the committed values of keys, in their order."""

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the committed keys with a prefix, ascending."""

    def scan_range(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the committed keys in start ≤ key < end, ascending."""

    def begin(self) -> Transaction:
        """Return a new transaction."""

    def close(self) -> None:
        """Release the store; may be called twice."""


class StoreSuite(ABC):
    """Tests that every store must pass; pytest collects the subclasses."""

    @abstractmethod
    def open_store(self, path: Path, *, read_only: bool = False) -> Store:
        """Open the store at a path; make it unless ``read_only``.

        Args:
            path: A new path for each test; its parent exists.
            read_only: Whether to open a reader beside a writer.
        """

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """Return the path of the store under test."""
        return tmp_path / "store"

    @pytest.fixture
    def store(self, place: Path) -> Iterator[Store]:
        """Yield a new, empty store and close it."""
        with closing(self.open_store(place)) as opened:
            yield opened

    # Commits

    def test_a_commit_is_seen_at_once_and_after_opening_again(self, place: Path) -> None:
        """Committed rows are visible and survive a restart."""
        with closing(self.open_store(place)) as store:
            _write(store, {b"k1": b"v1", b"k2": b""})
            assert store.get(b"k1") == b"v1"
        with closing(self.open_store(place)) as store:
            assert (store.get(b"k1"), store.get(b"k2")) == (b"v1", b"")

    def test_nothing_is_seen_before_the_commit(self, store: Store) -> None:
        """Only the transaction itself sees its rows."""
        transaction = store.begin()
        transaction.put(b"k", b"v")
        assert store.get(b"k") is None
        assert list(store.scan(b"k")) == []
        transaction.commit()
        assert store.get(b"k") == b"v"

    def test_a_dropped_transaction_leaves_nothing(self, store: Store) -> None:
        """``drop`` and an exception in the block discard the rows."""
        transaction = store.begin()
        transaction.put(b"k", b"v")
        transaction.drop()
        with pytest.raises(ZeroDivisionError):
            _divide_by_zero_in(store.begin())
        assert store.get(b"k") is None

    def test_an_open_transaction_is_dropped_by_close(self, place: Path) -> None:
        """Uncommitted rows are lost."""
        with closing(self.open_store(place)) as store:
            transaction = store.begin()
            transaction.put(b"k", b"v")
        assert transaction.state is TransactionState.DROPPED
        with closing(self.open_store(place)) as store:
            assert store.get(b"k") is None

    def test_the_last_write_of_a_key_counts(self, store: Store) -> None:
        """This holds even if the last write is a deletion."""
        _write(store, {b"old": b"1"})
        with store.begin() as transaction:
            transaction.put(b"k", b"1")
            transaction.put(b"k", b"2")
            transaction.put(b"gone", b"1")
            transaction.delete(b"gone")
            transaction.delete(b"old")
        assert store.multi_get([b"k", b"gone", b"old"]) == [b"2", None, None]

    def test_a_transaction_is_used_once(self, store: Store) -> None:
        """After commit or drop every use is refused."""
        done = store.begin()
        done.commit()
        dropped = store.begin()
        dropped.drop()
        dropped.drop()
        for over in (done, dropped):
            for use in _uses(over):
                with pytest.raises(TransactionStateError):
                    use()

    def test_a_second_transaction_waits_for_the_first(self, store: Store) -> None:
        """Two open transactions would lose each other's reads."""
        first = store.begin()
        with pytest.raises(TransactionStateError):
            store.begin()
        first.drop()
        store.begin().commit()

    # Reads

    def test_a_transaction_reads_its_own_writes(self, store: Store) -> None:
        """``get`` sees the transaction's writes and deletions."""
        _write(store, {b"a": b"1", b"b": b"1", b"c": b"1"})
        transaction = store.begin()
        transaction.put(b"a", b"2")
        transaction.delete(b"b")
        assert [transaction.get(key) for key in (b"a", b"b", b"c", b"d")] == [
            b"2",
            None,
            b"1",
            None,
        ]

    def test_multi_get_keeps_the_order_of_the_keys(self, store: Store) -> None:
        """Missing keys give None at their positions."""
        _write(store, {b"a": b"1", b"b": b"2"})
        assert store.multi_get([b"b", b"x", b"a", b"b"]) == [b"2", None, b"1", b"2"]
        assert store.multi_get([]) == []

    def test_a_scan_is_bytewise_ascending_and_ends_at_its_bounds(self, store: Store) -> None:
        """The start is inclusive, the end exclusive; a prefix selects all keys with it."""
        keys = [b"a", b"a\x00", b"a\x00\xff", b"a\xff", b"a\xff\xff", b"b", b"b\x00"]
        _write(store, {key: key for key in reversed(keys)})
        assert [key for key, _ in store.scan(b"a")] == keys[:5]
        assert [key for key, _ in store.scan(b"a\xff")] == keys[3:5]
        assert [key for key, _ in store.scan_range(b"a\x00", b"b")] == keys[1:5]
        assert list(store.scan_range(b"b", b"a")) == []
        assert list(store.scan(b"c")) == []

    def test_a_prefix_without_an_end_is_refused(self, store: Store) -> None:
        """An empty prefix would select every row, now and in later layouts."""
        for prefix in (b"", b"\xff", b"\xff\xff"):
            with pytest.raises(TransactionStateError):
                store.scan(prefix)

    def test_a_long_scan_is_as_of_its_call(self, store: Store) -> None:
        """The scan does not see later commits."""
        rows = {b"k%06d" % number: b"old" for number in range(MANY_ROWS)}
        _write(store, rows)
        scan = store.scan(b"k")
        first = next(scan)
        _write(store, dict.fromkeys(rows, b"new") | {b"k999999": b"new"})
        assert [first, *scan] == sorted(rows.items())

    # Opening and closing

    def test_a_scan_still_running_does_not_hold_a_closed_store(self, place: Path) -> None:
        """The scan raises an error, and the store can be opened again."""
        store = self.open_store(place)
        _write(store, {b"k%06d" % number: b"v" for number in range(MANY_ROWS)})
        scan = store.scan(b"k")
        next(scan)
        store.close()
        with closing(self.open_store(place)):
            pass
        with pytest.raises(StoreError):
            list(scan)

    def test_a_closed_store_refuses_every_use(self, place: Path) -> None:
        """Closing twice is allowed, but any other use raises an error."""
        store = self.open_store(place)
        store.close()
        store.close()
        uses: list[Callable[[], object]] = [
            lambda: store.get(b"k"),
            lambda: store.multi_get([b"k"]),
            lambda: store.scan(b"k"),
            lambda: store.scan_range(b"a", b"b"),
            store.begin,
        ]
        for use in uses:
            with pytest.raises(StoreError):
                use()

    def test_a_second_writer_is_refused(self, place: Path) -> None:
        """The first writer is not disturbed."""
        with closing(self.open_store(place)) as store:
            with pytest.raises(StoreLockedError):
                self.open_store(place)
            _write(store, {b"k": b"v"})
            assert store.get(b"k") == b"v"

    def test_a_reader_needs_an_existing_store_and_makes_none(self, place: Path) -> None:
        """No file appears at the path."""
        with pytest.raises(StoreMissingError):
            self.open_store(place, read_only=True)
        assert not place.exists()

    def test_a_reader_beside_the_writer_sees_the_commits_until_then(self, place: Path) -> None:
        """A reader does not see later commits, and it refuses to write."""
        with closing(self.open_store(place)) as store:
            _write(store, {b"k": b"1"})
            with closing(self.open_store(place, read_only=True)) as reader:
                _write(store, {b"k": b"2"})
                assert reader.get(b"k") == b"1"
                with pytest.raises(StoreError):
                    reader.begin()
            with closing(self.open_store(place, read_only=True)) as reader:
                assert reader.get(b"k") == b"2"


def _uses(transaction: Transaction) -> list[Callable[[], object]]:
    return [
        lambda: transaction.put(b"k", b"v"),
        lambda: transaction.delete(b"k"),
        lambda: transaction.put_rows({}),
        lambda: transaction.get(b"k"),
        transaction.commit,
    ]


def _divide_by_zero_in(transaction: Transaction) -> None:
    with transaction:
        transaction.put(b"k", bytes(1 // len(b"")))


def _write(store: Store, rows: dict[bytes, bytes]) -> None:
    with store.begin() as transaction:
        for key, value in rows.items():
            transaction.put(key, value)
