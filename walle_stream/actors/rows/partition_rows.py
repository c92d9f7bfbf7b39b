"""Reads and writes of a partition's turn, as rows of its database.

The class knows keys and encodings, and decides nothing. All writes between two commits go into one
transaction. Task state and feature rows first go through buffering tables.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Final

from walle_stream.actors.rows.letter_rows import drop_marks, put_letter, read_unsent
from walle_stream.clock import monotonic_ms
from walle_stream.ports import DeadLetter, InstalledTask, KeptLetter
from walle_stream.store import keys
from walle_stream.store.buffering import BufferingTable, FlushPolicy
from walle_stream.store.durability import Durability
from walle_stream.store.keys import DeviceKeys
from walle_stream.store.partition import PartitionStore
from walle_stream.store.transaction import Transaction, prefix_end
from walle_stream.stream.interface import Core
from walle_stream.stream.snapshots import DeviceRows
from walle_stream.stream.task_sets import Changes, SetDefinition
from walle_stream.wire.calls import CloudCall
from walle_stream.wire.frame import FeatureRecord
from walle_stream.wire.journal import JournalBatch, decode_batch
from walle_stream.wire.rows import PartitionHead, RowDecoder, encode_row

_U64: Final = Struct(">Q")
_decode_head = RowDecoder(PartitionHead, "head").decode
_decode_call = RowDecoder(tuple[str, CloudCall], "call").decode
_decode_definition = RowDecoder(SetDefinition, "journal").decode
_decode_task_set = RowDecoder(dict[str, InstalledTask | None], "task set").decode
_decode_feature = RowDecoder(tuple[str, bytes, bytes], "feature").decode


class PartitionRows:
    """Rows of one partition. One thread, the device host's."""

    def __init__(self, store: PartitionStore, flush_policy: FlushPolicy | None = None) -> None:
        """Use an opened database, which is closed with this object."""
        self._store = store
        self._policy = flush_policy or FlushPolicy()
        self._transaction: Transaction | None = None
        self._tables: dict[str, BufferingTable] = {}
        self._deadlines: dict[str, int] = {}
        self._keys: dict[str, DeviceKeys] = {}  # of the current batch's devices

    # Reading

    def get(self, key: bytes) -> bytes | None:
        """Return a committed row of a part with its own keys, or None."""
        return self._store.get(key)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over committed rows of a part with its own keys."""
        return self._store.scan(prefix)

    def head(self) -> PartitionHead:
        """Return the partition's head, as of the last commit."""
        row = self._store.get(keys.HEAD_KEY)
        return PartitionHead() if row is None else _decode_head(row)

    def offset(self) -> bytes | None:
        """Return the source's offset, or None before the first commit."""
        return self._store.get(keys.OFFSET_KEY)

    def incarnation(self, first: str) -> str:
        """Return the incarnation with which the partition began; blocks the first time.

        ``first`` is the data directory's; it is stored if there is none yet.
        """
        stored = self._store.get(keys.INCARNATION_KEY)
        if stored is not None:
            return stored.decode()
        transaction = self._store.begin()
        transaction.put(keys.INCARNATION_KEY, first.encode())
        transaction.commit()
        self.durability.wait()
        return first

    @property
    def durability(self) -> Durability:
        """Tracker of the commits that survive a power cut."""
        return self._store.durability

    @property
    def epoch(self) -> int:
        """Epoch of the last opening."""
        stored = self._store.get(keys.EPOCH_KEY)
        return int(_U64.unpack(stored)[0]) if stored else 0

    def checkpoint(self, path: Path) -> None:
        """Make a copy of the database; see ``PartitionStore.checkpoint``."""
        self._store.checkpoint(path)

    def kept(self) -> None:
        """Record that the last copy is a complete snapshot; any thread. See ``Tenant.kept``."""
        if self._store.tenant is not None:
            self._store.tenant.kept()

    @property
    def path(self) -> Path:
        """The database's folder."""
        return self._store.path

    def next_epoch(self, least: int = 0) -> int:
        """Take a new epoch for this opening and make it durable; blocks.

        If placement uses generations, ``least`` is above all epochs of earlier generations.
        """
        epoch = max(self.epoch + 1, least)
        transaction = self._store.begin()
        transaction.put(keys.EPOCH_KEY, _U64.pack(epoch))
        transaction.commit()
        self.durability.wait()
        return epoch

    def device(self, device_id: str) -> bytes | None:
        """Return the row of a passive device, or None."""
        return self._store.get(DeviceKeys(device_id).row)

    def device_ids(self, behind: str, limit: int) -> list[str]:
        """Return ids of stored devices after ``behind``, ascending; reads no values."""
        found: list[str] = []

        def take(key: bytes) -> bytes | None:
            device_id, table, _ = keys.parse_device(key)
            if table == keys.TABLE_DEVICE:
                found.append(device_id)
            return DeviceKeys(device_id).behind if len(found) < limit else None

        start = DeviceKeys(behind).behind if behind else keys.DEVICE_PREFIX
        self._store.skim(start, prefix_end(keys.DEVICE_PREFIX), take)
        return found

    def wake(self, core: Core, device_ids: Iterable[str]) -> None:
        """Load those devices into memory that are missing."""
        for device_id in device_ids:
            if not core.is_active(device_id):
                core.activate(device_id, self.device(device_id), partial(self._pages, device_id))

    def _pages(self, device_id: str) -> Iterator[tuple[int, bytes]]:
        for key, value in self._store.scan(DeviceKeys(device_id).pages()):
            yield keys.parse_page_row(key)[0], value

    def journal(self) -> Iterator[tuple[int, JournalBatch]]:
        """Iterate over the journal's batches, by number."""
        for key, value in self._store.scan(keys.JOURNAL_PREFIX):
            yield keys.parse_number(key), decode_batch(value)

    def journal_definition(self) -> SetDefinition | None:
        """Return the definition of the journal's batches; None at first."""
        row = self._store.get(keys.JOURNAL_KEY)
        return None if row is None else _decode_definition(row)

    def task_set(self, set_id: str) -> Changes | None:
        """Return the changes of a stored set, or None."""
        row = self._store.get(keys.task_set_key(set_id))
        return None if row is None else _decode_task_set(row)

    def kept_state(self, device_id: str, task: str, layout: int) -> dict[str, bytes]:
        """Return a state of an earlier layout, by key; empty if none was kept."""
        prefix = DeviceKeys(device_id).kept_states(task, layout)
        skip = len(prefix)
        return {key[skip:].decode(): value for key, value in self._store.scan(prefix)}

    def timers(self) -> Iterator[tuple[str, int]]:
        """Iterate over the stored devices that have a deadline."""
        for key, value in self._store.scan(keys.DEADLINE_PREFIX):
            device_id, deadline_ms = key[1:].decode(), int(_U64.unpack(value)[0])
            self._deadlines[device_id] = deadline_ms
            yield device_id, deadline_ms

    def task_state(self, device_id: str, task: str) -> dict[str, bytes]:
        """Return a device's state for a task, by key."""
        prefix = DeviceKeys(device_id).states(task)
        skip = len(prefix)
        return {key[skip:].decode(): value for key, value in self._store.scan(prefix)}

    def outbox(self) -> list[tuple[int, bytes]]:
        """Return the frames without acknowledgement, by number."""
        return [
            (keys.parse_number(key), value) for key, value in self._store.scan(keys.OUTBOX_PREFIX)
        ]

    def calls(self) -> Iterator[CloudCall]:
        """Iterate over the calls to the cloud without a reply, by device and number."""
        for _, value in self._store.scan(keys.CALL_PREFIX):
            yield _decode_call(value)[1]

    # Writes, which become visible with ``commit``

    def put_device(self, rows: DeviceRows) -> None:
        """Write a device and the changes of its open pages."""
        transaction = self.batch
        device = self._device_keys(rows.device_id)
        transaction.put(device.row, rows.row)
        for ordinal, index, row in rows.page_rows:
            transaction.put(device.page_row(ordinal, index), row)
        for ordinal, count in rows.closed_pages:
            for index in range(count):
                transaction.delete(device.page_row(ordinal, index))
        self._put_deadline(transaction, rows.device_id, rows.deadline_ms)

    def put_journal(self, number: int, row: bytes) -> None:
        """Write a batch of the journal."""
        self.batch.put(keys.batch_key(number), row)

    def drop_journal(self, numbers: Iterable[int]) -> None:
        """Delete batches of the journal."""
        transaction = self.batch
        for number in numbers:
            transaction.delete(keys.batch_key(number))

    def put_journal_definition(self, definition: SetDefinition) -> None:
        """Write the definition of the journal's batches."""
        self.batch.put(keys.JOURNAL_KEY, encode_row(definition))

    def put_task_set(self, set_id: str, changes: Changes) -> None:
        """Write a set of tasks."""
        self.batch.put(keys.task_set_key(set_id), encode_row(changes))

    def keep_state(
        self, device_id: str, task: str, layout: int, state: Mapping[str, bytes]
    ) -> None:
        """Write a copy of a state before its migration to a later layout."""
        transaction, prefix = self.batch, DeviceKeys(device_id).kept_states(task, layout)
        for key, value in state.items():
            transaction.put(prefix + key.encode(), value)

    def drop_kept_states(self, device_id: str, task: str) -> None:
        """Delete the kept states of a task, of any layout."""
        transaction = self.batch
        for key, _ in self._store.scan(DeviceKeys(device_id).kept_states(task)):
            transaction.delete(key)

    def put_task_states(
        self, task: str, changes_by_device: Mapping[str, Mapping[str, bytes | None]]
    ) -> None:
        """Write the state changes of a task's runs, by device and key; None deletes a key."""
        rows: dict[bytes, bytes | None] = {}
        for device_id, changes in changes_by_device.items():
            prefix = self._device_keys(device_id).states(task)
            for key, value in changes.items():
                rows[prefix + key.encode()] = value
        self._table(task).put_rows(rows, int(monotonic_ms()))

    def put_features(self, records: Iterable[FeatureRecord]) -> None:
        """Write feature rows."""
        by_task: dict[str, dict[bytes, bytes | None]] = {}
        device_id, device = "", DeviceKeys(" ")
        for record in records:
            if record.device_id != device_id:
                device_id = record.device_id
                device = self._device_keys(device_id)
            rows = by_task.get(record.task)
            if rows is None:
                rows = by_task[record.task] = {}
            key = device.feature(record.task, record.sequence_number)
            rows[key] = encode_row((record.task_version, record.feature, record.encoding))
        now_ms = int(monotonic_ms())
        for task, rows in by_task.items():
            self._table(task).put_rows(rows, now_ms)

    def put_outbox(self, frames: Iterable[tuple[int, bytes]], acknowledged: Sequence[int]) -> None:
        """Write new frames and delete acknowledged ones."""
        transaction = self.batch
        for number, body in frames:
            transaction.put(keys.outbox_key(number), body)
        for number in acknowledged:
            transaction.delete(keys.outbox_key(number))

    def unsent_letters(
        self, after: int, *, pipeline: str, incarnation: str, partition: int
    ) -> Iterator[KeptLetter]:
        """Iterate over the committed letters after a number that the sink has not acknowledged."""
        for number, letter in read_unsent(self._store, after):
            yield KeptLetter(
                letter=letter,
                pipeline=pipeline,
                incarnation=incarnation,
                partition=partition,
                number=number,
            )

    def drop_letter_marks(self, numbers: Iterable[int]) -> None:
        """Delete the marks of letters that the sink has acknowledged."""
        drop_marks(self.batch, numbers)

    def put_dead_letters(
        self, head: PartitionHead, letters: Sequence[DeadLetter], *, is_to_send: bool
    ) -> None:
        """Append dead letters, and count them."""
        transaction = self.batch
        for letter in letters:
            put_letter(transaction, head.next_dead_letter, letter, is_to_send=is_to_send)
            head.next_dead_letter += 1
        head.counters.dead_letters += len(letters)

    def put_call(self, name: str, call: CloudCall) -> None:
        """Write an open call to the cloud, with the script's name for it."""
        self.batch.put(keys.call_key(call.device_id, call.number), encode_row((name, call)))

    def take_call(self, device_id: str, number: int, digest: str) -> tuple[str, CloudCall] | None:
        """Return an open call with its name, and delete it; None if there is no such call.

        A call with the same number but another digest is left alone.
        """
        transaction, key = self.batch, keys.call_key(device_id, number)
        row = transaction.get(key)
        if row is None:
            return None
        name, call = _decode_call(row)
        if call.digest != digest:
            return None
        transaction.delete(key)
        return name, call

    @property
    def has_changes(self) -> bool:
        """Whether there are writes since the last commit, other than the head."""
        return self._transaction is not None and self._transaction.row_count > 0

    def commit(self, head: PartitionHead, offset: bytes | None) -> None:
        """Write everything in ONE write batch, with the source's offset; blocks.

        Raises:
            StoreError: Nothing was written.
        """
        transaction = self.batch
        for table in self._tables.values():
            table.flush()
        transaction.put(keys.HEAD_KEY, encode_row(head))
        if offset is not None:
            transaction.put(keys.OFFSET_KEY, offset)
        transaction.commit()
        self._transaction = None
        self._keys = {}
        for table in self._tables.values():
            table.mark_committed()

    def close(self) -> None:
        """Drop uncommitted writes and release the database."""
        if self._transaction is not None:
            self._transaction.drop()
            self._transaction = None
        self._store.close()

    def _device_keys(self, device_id: str) -> DeviceKeys:
        device_keys = self._keys.get(device_id)
        if device_keys is None:
            device_keys = self._keys[device_id] = DeviceKeys(device_id)
        return device_keys

    @property
    def batch(self) -> Transaction:
        """The current write batch, for parts with their own keys."""
        if self._transaction is None:
            self._transaction = self._store.begin()
            for table in self._tables.values():
                table.bind(self._transaction)
        return self._transaction

    def _table(self, task: str) -> BufferingTable:
        table = self._tables.get(task)
        if table is None:
            table = self._tables[task] = BufferingTable(self._policy)
        table.bind(self.batch)
        return table

    def _put_deadline(
        self, transaction: Transaction, device_id: str, deadline_ms: int | None
    ) -> None:
        if deadline_ms is None:
            if self._deadlines.pop(device_id, None) is not None:
                transaction.delete(keys.deadline_key(device_id))
        elif self._deadlines.get(device_id) != deadline_ms:
            self._deadlines[device_id] = deadline_ms
            transaction.put(keys.deadline_key(device_id), _U64.pack(deadline_ms))
