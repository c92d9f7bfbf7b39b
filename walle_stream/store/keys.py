r"""Every key of a partition's database, in one place.

All keys are bytes and sort bytewise; integers are big-endian, so that their
order is the numbers' order. Layout version 1 (``FORMAT_VERSION``)::

    \x00 NAME                                    one row: format, head, offset, epoch
    \x01 u64 number                              outbox frame, body
    \x02 u64 number                              dead letter, JSON
    \x03 DEVICE                                  deadline of a device at rest, u64 ms
    \x10 DEVICE \x00 \x01                        device row
    \x10 DEVICE \x00 \x02 u64 ordinal u32 index  event row of an open page, append-only
    \x10 DEVICE \x00 \x03 u16 len TASK KEY       task state, JSON made by the guest
    \x10 DEVICE \x00 \x04 u16 len TASK u64 seq   feature row
    \x10 DEVICE \x00 \x05 u64 seq                downlink message, JSON

DEVICE is the id's UTF-8, which has no NUL: so one device's keys are one range,
and no id's range lies within another's. Its hot rows come first: waking a
device reads \x01 and \x02 and stops before the features. TASK has its length in
front, so that a scan of one task never meets another's rows.
"""

from struct import Struct
from typing import Final

FORMAT_VERSION: Final = 1
"""Version of this layout; a database of another one is refused."""

FORMAT_KEY: Final = b"\x00format"
HEAD_KEY: Final = b"\x00head"
OFFSET_KEY: Final = b"\x00offset"
EPOCH_KEY: Final = b"\x00epoch"

OUTBOX_PREFIX: Final = b"\x01"
DEAD_LETTER_PREFIX: Final = b"\x02"
DEADLINE_PREFIX: Final = b"\x03"
DEVICE_PREFIX: Final = b"\x10"

TABLE_DEVICE: Final = 1
TABLE_PAGE: Final = 2
TABLE_STATE: Final = 3
TABLE_FEATURE: Final = 4
TABLE_MESSAGE: Final = 5

_U64: Final = Struct(">Q")
_PAGE_ROW: Final = Struct(">QI")
_U16: Final = Struct(">H")


class DeviceKeys:
    """Builds the keys of one device."""

    __slots__ = ("base", "row")

    def __init__(self, device_id: str) -> None:
        """Prepare.

        Args:
            device_id: A valid device id (no NUL).
        """
        self.base = DEVICE_PREFIX + device_id.encode() + b"\x00"
        self.row = self.base + b"\x01"

    def pages(self) -> bytes:
        """Return the prefix of all open page rows."""
        return self.base + b"\x02"

    def page_row(self, ordinal: int, index: int) -> bytes:
        """Return the key of an event row of an open page."""
        return self.base + b"\x02" + _PAGE_ROW.pack(ordinal, index)

    def states(self, task: str) -> bytes:
        """Return the prefix of a task's state."""
        return self.base + b"\x03" + _task(task)

    def state(self, task: str, key: str) -> bytes:
        """Return the key of one state value."""
        return self.base + b"\x03" + _task(task) + key.encode()

    def features(self, task: str) -> bytes:
        """Return the prefix of a task's feature rows."""
        return self.base + b"\x04" + _task(task)

    def feature(self, task: str, sequence_number: int) -> bytes:
        """Return the key of a feature row."""
        return self.base + b"\x04" + _task(task) + _U64.pack(sequence_number)

    def message(self, sequence_number: int) -> bytes:
        """Return the key of a downlink message."""
        return self.base + b"\x05" + _U64.pack(sequence_number)


def outbox_key(number: int) -> bytes:
    """Return the key of an outbox frame."""
    return OUTBOX_PREFIX + _U64.pack(number)


def dead_letter_key(number: int) -> bytes:
    """Return the key of a dead letter."""
    return DEAD_LETTER_PREFIX + _U64.pack(number)


def deadline_key(device_id: str) -> bytes:
    """Return the key of a device's deadline row."""
    return DEADLINE_PREFIX + device_id.encode()


def parse_number(key: bytes) -> int:
    """Return the number of an outbox or dead letter key."""
    return int(_U64.unpack_from(key, 1)[0])


def parse_page_row(key: bytes) -> tuple[int, int]:
    """Return (ordinal, index) of an open page row's key."""
    ordinal, index = _PAGE_ROW.unpack_from(key, len(key) - _PAGE_ROW.size)
    return ordinal, index


def parse_device(key: bytes) -> tuple[str, int, bytes]:
    """Return (device id, table, rest) of a device's key."""
    end = key.index(b"\x00", 1)
    return key[1:end].decode(), key[end + 1], key[end + 2 :]


def parse_task(rest: bytes) -> tuple[str, bytes]:
    """Return (task, rest) of a state or feature key's rest."""
    end = 2 + int(_U16.unpack_from(rest)[0])
    return rest[2:end].decode(), rest[end:]


def _task(task: str) -> bytes:
    name = task.encode()
    return _U16.pack(len(name)) + name
