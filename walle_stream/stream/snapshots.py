"""A device at rest, and the rows that a commit writes for a device.

Place in the data flow: ``Core.delta`` makes them, the partition's rows write them unchanged,
and ``Core.activate`` reads them.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from walle_stream.wire.rows import RowDecoder


class DeviceSnapshot(msgspec.Struct, array_like=True):
    """A device at rest, without the event rows of its open pages."""

    position: int
    next_number: int
    cursor: list[list[str]]
    deadline_ms: int | None
    sequence: Any
    """``DeviceSequence.export()``: plain tuples."""
    next_call: int = 1
    as_of: int = 0
    """Number of the last included batch."""
    task_set: str = ""
    """Id of the device's task set; empty for the definition's tasks."""

    @property
    def has_pages(self) -> bool:
        """Whether pages are open."""
        return bool(self.sequence[4])

    @classmethod
    def decoded(cls, row: bytes) -> "DeviceSnapshot":
        """Decode a stored row.

        Raises:
            FormatVersionError: The row's layout is of another version.
            StoreCorruptedError: The row is damaged.
        """
        return _decode(row)


class DeviceRows(msgspec.Struct, gc=False):
    """Encoded rows of one dirty device for a commit."""

    device_id: str
    row: bytes
    """A ``DeviceSnapshot``."""
    deadline_ms: int | None
    """Time of its next timer; None for never."""
    page_rows: list[tuple[int, int, bytes]]
    """New event rows of open pages: (page ordinal, row index, row); append-only."""
    closed_pages: list[tuple[int, int]]
    """Closed pages with rows in the store: (ordinal, row count)."""


def decode_page_rows(rows: Iterable[tuple[int, bytes]]) -> dict[int, list[Any]]:
    """Decode (page ordinal, row) of open pages, in order; return rows by ordinal.

    Raises:
        StoreCorruptedError: A row is damaged.
    """
    by_partition: dict[int, list[Any]] = {}
    for ordinal, row in rows:
        by_partition.setdefault(ordinal, []).append(tuple(_decode_page_row(row)))
    return by_partition


_decode = RowDecoder(DeviceSnapshot, "device").decode
_decode_page_row = RowDecoder(list[Any], "open page").decode
