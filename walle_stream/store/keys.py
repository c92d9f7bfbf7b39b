r"""Every key of a partition's database, in one place.

All keys are bytes and sort bytewise; integers are big-endian, so that their
order is the numbers' order. Layout version 1 (``FORMAT_VERSION``)::

    \x00 NAME                                    one row: format, tables, head, offset, epoch,
                                                incarnation, journal (definition)
    \x01 u64 number                              outbox frame, body
    \x02 u64 number                              dead letter, JSON
    \x03 DEVICE                                  deadline of a passive device, u64 ms
    \x04 u64 number                              batch of the journal
    \x05 u64 number                              record of a dead letter, unchanged
    \x06 u64 number                              mark of an unsent dead letter, empty
    \x07 SET                                     task set of devices, by its id
    \x08 DEVICE \x00 u64 number                  call to the cloud without a reply
    \x09 u64 number                              message for a device that was never seen
    \x0a SENDER                                  last message of a sender
    \x10 DEVICE \x00 \x01                        device row
    \x10 DEVICE \x00 \x02 u64 ordinal u32 index  event row of an open page, append-only
    \x10 DEVICE \x00 \x03 u16 len TASK KEY       task state, JSON made by the guest
    \x10 DEVICE \x00 \x04 u16 len TASK u64 seq   feature row
    \x10 DEVICE \x00 \x07 u16 len TASK u32 layout KEY
                                                task state of an earlier layout, kept for a
                                                rollback
    \x20 ...                                     the cloud side, where it is stored here

DEVICE is the id's UTF-8, which has no NUL. One device's keys are therefore one range, and no id's
range lies within another's. The hot rows of a device come first: waking it reads \x01 and \x02 and
stops before the features. TASK has its length in front, so that a scan of one task never meets
another's rows; tasks therefore sort by length, then by name. KEY is the rest of the key and may be
any text.

Values by row, in the versions of ``TABLE_VERSIONS``:

==============  ==============================================================
format          decimal text of ``FORMAT_VERSION``
tables          JSON object of ``TABLE_VERSIONS``
head            MessagePack ``[1, PartitionHead]``: counters, watermark, next
                numbers, downlink position; rewritten by every commit
offset          the source's resume token, opaque
epoch           u64, incremented at every opening for writing
incarnation     that of the partition's first data directory, 16 hexadecimal digits
outbox          body of an uplink frame, self-describing (``wire.frame``)
journal         MessagePack ``[1, SetDefinition]``: tasks' triggers and the
                sequence policy for the journal's batches
letter record   the record's bytes, at most 1 MiB; kept with its letter
batch           see ``wire.journal``; deleted when all its devices were written
device          MessagePack ``[1, DeviceSnapshot]``: cursor, numbers, held
                events and the headers of the open pages
page            MessagePack ``[1, row]``; never written again, because rewriting
                whole pages would limit the throughput
state           JSON, never decoded by the host
feature         MessagePack ``[1, [task version, feature, encoding]]``
call            MessagePack ``[1, [name of the call, CloudCall]]``, to be sent again
message         MessagePack ``[1, [device, watermark ms, sender, number, payload]]``: watermark
                at its arrival, number of its sender; deleted when it is given to the device
sender          MessagePack ``[1, [number, messages]]``: number of its last message, and the
                partition's count of messages then
task set        MessagePack ``[1, {task: InstalledTask or nil}]``: changes to the definition's
                tasks; never written again
kept state      as state
==============  ==============================================================

There are two kinds of version. ``FORMAT_VERSION`` changes with this layout of keys, when all rows
must be rewritten. A table's version changes with its values; its rows are rewritten when they are
next read. An older program refuses both.
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Final

from walle_stream.errors import StoreCorruptedError, StoreError

FORMAT_VERSION: Final = 1
"""Version of this layout; a database with another one is refused."""

TABLE_VERSIONS: Final[Mapping[str, int]] = {
    "call": 2,
    "dead_letter": 1,
    "deadline": 1,
    "device": 1,
    "feature": 1,
    "head": 1,
    "journal": 1,
    "kept_state": 1,
    "letter_record": 1,
    "message": 1,
    "outbox": 1,
    "page": 1,
    "sender": 1,
    "state": 1,
    "task_set": 1,
    "unsent_letter": 1,
}
"""Version of each table's values; a database with other versions is refused."""

FORMAT_KEY: Final = b"\x00format"
TABLES_KEY: Final = b"\x00tables"
HEAD_KEY: Final = b"\x00head"
OFFSET_KEY: Final = b"\x00offset"
EPOCH_KEY: Final = b"\x00epoch"
INCARNATION_KEY: Final = b"\x00incarnation"
JOURNAL_KEY: Final = b"\x00journal"

CLOUD_PREFIX: Final = b"\x20"
OUTBOX_PREFIX: Final = b"\x01"
DEAD_LETTER_PREFIX: Final = b"\x02"
DEADLINE_PREFIX: Final = b"\x03"
JOURNAL_PREFIX: Final = b"\x04"
LETTER_RECORD_PREFIX: Final = b"\x05"
UNSENT_LETTER_PREFIX: Final = b"\x06"
TASK_SET_PREFIX: Final = b"\x07"
CALL_PREFIX: Final = b"\x08"
MESSAGE_PREFIX: Final = b"\x09"
SENDER_PREFIX: Final = b"\x0a"
DEVICE_PREFIX: Final = b"\x10"

TABLE_DEVICE: Final = 1
TABLE_PAGE: Final = 2
TABLE_STATE: Final = 3
TABLE_FEATURE: Final = 4
TABLE_KEPT_STATE: Final = 7

_U64: Final = Struct(">Q")
_PAGE_ROW: Final = Struct(">QI")
_U32: Final = Struct(">I")
_U16: Final = Struct(">H")


class DeviceKeys:
    """Builder of the keys of one device."""

    __slots__ = ("base", "behind", "row")

    def __init__(self, device_id: str) -> None:
        """Prepare the prefixes.

        Raises:
            StoreError: The id is empty or contains NUL: its keys would lie within another device's.
        """
        if not device_id or "\0" in device_id:
            raise StoreError(f"device id {device_id!r} is empty or contains NUL: it has no keys")
        self.base = DEVICE_PREFIX + device_id.encode() + b"\x00"
        self.row = self.base + b"\x01"
        self.behind = self.base[:-1] + b"\x01"  # start of all later devices

    def pages(self) -> bytes:
        """Return the prefix of all open page rows."""
        return self.base + b"\x02"

    def page_row(self, ordinal: int, index: int) -> bytes:
        """Return the key of an event row (a u32 of its page) of an open page (a u64).

        Raises:
            StoreError: A number is out of range.
        """
        try:
            return self.base + b"\x02" + _PAGE_ROW.pack(ordinal, index)
        except struct.error as error:
            raise StoreError(f"page {ordinal}, row {index} have no key: {error}") from error

    def states(self, task: str) -> bytes:
        """Return the prefix of a task's state."""
        return self.base + b"\x03" + _task(task)

    def state(self, task: str, key: str) -> bytes:
        """Return the key of one state value."""
        return self.base + b"\x03" + _task(task) + key.encode()

    def feature(self, task: str, sequence_number: int) -> bytes:
        """Return the key of a feature row; the device's sequence number is a u64."""
        return self.base + b"\x04" + _task(task) + _number(sequence_number)

    def kept_states(self, task: str, layout: int | None = None) -> bytes:
        """Return the prefix of a task's kept states, of one layout (a u32 from 1) or of all."""
        prefix = self.base + b"\x07" + _task(task)
        return prefix if layout is None else prefix + _U32.pack(layout)


def task_set_key(set_id: str) -> bytes:
    """Return the key of a task set."""
    return TASK_SET_PREFIX + set_id.encode()


def call_key(device_id: str, number: int) -> bytes:
    """Return the key of a call without a reply; the number of a device's call is a u64."""
    return CALL_PREFIX + device_id.encode() + b"\x00" + _number(number)


def message_key(number: int) -> bytes:
    """Return the key of a message that waits for its device."""
    return MESSAGE_PREFIX + _number(number)


def sender_key(sender: str) -> bytes:
    """Return the key of a sender of messages."""
    return SENDER_PREFIX + sender.encode()


def batch_key(number: int) -> bytes:
    """Return the key of a batch of the journal."""
    return JOURNAL_PREFIX + _number(number)


def outbox_key(number: int) -> bytes:
    """Return the key of an outbox frame."""
    return OUTBOX_PREFIX + _number(number)


def dead_letter_key(number: int) -> bytes:
    """Return the key of a dead letter."""
    return DEAD_LETTER_PREFIX + _number(number)


def letter_record_key(number: int) -> bytes:
    """Return the key of a dead letter's record, if the letter does not show it whole."""
    return LETTER_RECORD_PREFIX + _number(number)


def unsent_letter_key(number: int) -> bytes:
    """Return the key of the mark of a dead letter that its sink has not acknowledged."""
    return UNSENT_LETTER_PREFIX + _number(number)


def deadline_key(device_id: str) -> bytes:
    """Return the key of a device's deadline row."""
    return DEADLINE_PREFIX + device_id.encode()


def parse_number(key: bytes) -> int:
    """Return the number of an outbox, dead letter (record, mark), message or journal key.

    Raises:
        StoreCorruptedError: It is no such key.
    """
    try:
        return int(_U64.unpack(key[1:])[0])
    except struct.error as error:
        raise StoreCorruptedError(_damaged(key)) from error


def parse_page_row(key: bytes) -> tuple[int, int]:
    """Return (ordinal, index) of an open page row's key.

    Raises:
        StoreCorruptedError: It is no such key.
    """
    try:
        ordinal, index = _PAGE_ROW.unpack(key[-_PAGE_ROW.size :])
    except struct.error as error:
        raise StoreCorruptedError(_damaged(key)) from error
    return ordinal, index


def parse_device(key: bytes) -> tuple[str, int, bytes]:
    """Return (device id, table, rest) of a device's key.

    Raises:
        StoreCorruptedError: It is no such key.
    """
    try:
        end = key.index(b"\x00", 1)
        return key[1:end].decode(), key[end + 1], key[end + 2 :]
    except (ValueError, IndexError) as error:
        raise StoreCorruptedError(_damaged(key)) from error


def parse_task(rest: bytes) -> tuple[str, bytes]:
    """Return (task, rest) from the rest that ``parse_device`` returned for a state or feature key.

    Raises:
        StoreCorruptedError: The rest has no task.
    """
    try:
        end = 2 + int(_U16.unpack_from(rest)[0])
        task = rest[2:end].decode()
    except (struct.error, ValueError) as error:
        raise StoreCorruptedError(_damaged(rest)) from error
    if len(rest) < end:
        raise StoreCorruptedError(_damaged(rest))
    return task, rest[end:]


@lru_cache(1024)
def _task(task: str) -> bytes:
    name = task.encode()
    try:
        return _U16.pack(len(name)) + name
    except struct.error as error:
        raise StoreError(
            f"task {task[:40]!r}... has a name of {len(name)} bytes: at most 65,535 fit into a key"
        ) from error


def _number(number: int) -> bytes:
    try:
        return _U64.pack(number)
    except struct.error as error:
        raise StoreError(f"number {number} has no key: {error}") from error


def _damaged(key: bytes) -> str:
    return (
        f"key {key[:80]!r} has no known layout: restore the data directory from a copy, or start "
        "with a new one"
    )
