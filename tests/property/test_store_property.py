"""A partition's store against a dict, through transactions, tables, crashes and re-openings."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from walle_stream.store import rocks
from walle_stream.store.buffering import BufferingTable, FlushPolicy
from walle_stream.store.partition import PartitionStore
from walle_stream.store.transaction import Transaction

# few keys that are prefixes of each other, so that rows meet
KEYS = st.lists(st.sampled_from([b"\x11", b"a", b"b", b"\xff"]), min_size=1, max_size=3).map(
    lambda parts: b"k" + b"".join(parts)
)
VALUES = st.binary(max_size=20)
PREFIXES = st.sampled_from([b"k", b"ka", b"kab", b"k\xff", b"kb\x11", b"zz"])
POLICY = FlushPolicy(max_rows=4, max_bytes=60, max_age_ms=5)

type Model = dict[bytes, bytes]


def with_prefix(rows: Model, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return sorted(row for row in rows.items() if row[0].startswith(prefix))


class StoreAgainstDict(RuleBasedStateMachine):
    """``committed`` is what the store must hold, ``pending`` what the transaction must read."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="walle-store-"))
        self.lives = 0
        self.committed: Model = {}
        self.pending: Model = {}
        self.transaction: Transaction | None = None
        self.now_ms = 0

    @initialize()
    def open(self) -> None:
        self.path = self.folder / str(self.lives)
        self.store = PartitionStore.open(self.path)
        self.table = BufferingTable(POLICY)
        self.transaction = None
        self.pending = dict(self.committed)

    def begun(self) -> Transaction:
        if self.transaction is None:
            self.transaction = self.store.begin()
            self.table.bind(self.transaction)
            self.pending = dict(self.committed)
        return self.transaction

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.begun().put(b"t" + key, value)
        self.pending[b"t" + key] = value

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        self.begun().delete(b"t" + key)
        self.pending.pop(b"t" + key, None)

    @rule(key=KEYS, value=st.none() | VALUES, step_ms=st.integers(0, 3))
    def put_in_table(self, key: bytes, value: bytes | None, step_ms: int) -> None:
        self.begun()
        self.now_ms += step_ms
        self.table.put_rows({key: value}, self.now_ms)
        if value is None:
            self.pending.pop(key, None)
        else:
            self.pending[key] = value

    @rule(keys=st.lists(KEYS, max_size=4))
    def read(self, keys: list[bytes]) -> None:
        wanted = [b"t" + key for key in keys]
        assert self.store.multi_get(wanted) == [self.committed.get(key) for key in wanted]
        for key in wanted:
            assert self.begun().get(key) == self.pending.get(key)

    @rule(prefix=PREFIXES)
    def scan(self, prefix: bytes) -> None:
        assert list(self.store.scan(prefix)) == with_prefix(self.committed, prefix)

    @rule()
    def commit(self) -> None:
        self.begun().commit()
        self.committed, self.transaction = dict(self.pending), None

    @precondition(lambda self: self.transaction is not None)
    @rule()
    def drop(self) -> None:
        self.begun().drop()
        self.pending, self.transaction = dict(self.committed), None

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.open()

    @rule(torn_bytes=st.integers(0, 40))
    def crash_and_open(self, torn_bytes: int) -> None:
        # SIGKILL leaves the files as they are now; a kill within the next commit also leaves the
        # beginning of a record at their end
        self.lives += 1
        shutil.copytree(self.path, self.folder / str(self.lives))
        self.store.close()
        shutil.rmtree(self.path)
        self.path = self.folder / str(self.lives)
        newest = max(self.path.glob("*.log"))
        with newest.open("ab") as log:
            log.write(bytes(range(200, 240))[:torn_bytes])
        self.open()

    @rule()
    def read_beside(self) -> None:
        with PartitionStore.open(self.path, read_only=True) as reader:
            assert dict(reader.scan_range(b"\x10", b"\xff")) == self.committed

    @invariant()
    def store_holds_what_was_committed(self) -> None:
        if hasattr(self, "store"):
            assert dict(self.store.scan_range(b"\x10", b"\xff")) == self.committed

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.folder)


def test_store_equals_a_dict_through_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocks, "WRITE_BUFFER_BYTES", 64 << 10)
    run_state_machine_as_test(
        StoreAgainstDict, settings=settings(max_examples=25, stateful_step_count=30)
    )
