"""Rows of a partition's journal: what was taken, while its effects are not all in the store.

A row is MessagePack, ``[1, [watermark before, is_end, [part, ...], [numbers, ...]]]``;
a part is an array of events, each a map of the fields of ``Event`` by name, numbers
are ``[device id, next sequence number, next number of a call]``. Behind them stand, where
there are any, ``[[device id, task set], ...]`` that were installed before the events. Events
are written whole: projecting them to what tasks read costs more than the bytes do.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from walle_stream.events import Event
from walle_stream.wire.event_batch import EventBatch
from walle_stream.wire.rows import RowDecoder, encode_row

type DeviceNumbers = tuple[str, int, int]
"""(device id, next sequence number, next number of a call)."""

type Installs = Sequence[tuple[str, str]]
"""(device id, id of the task set that it has from now on), in order."""


class JournalBatch(msgspec.Struct, array_like=True, frozen=True):
    """What one commit took, as the core is given it again."""

    watermark_ms: int
    """Of the partition, before it."""
    is_end: bool
    """Whether the source's natural end follows."""
    parts: list[list[Event]]
    """In the partition's order."""
    numbers: list[DeviceNumbers]
    """Of the devices whose scripts emitted or called, behind the commit: giving them the
    events again does not tell."""
    installs: Installs = ()
    """Behind the events."""

    @property
    def events(self) -> EventBatch:
        """The events of all parts."""
        return EventBatch([event for part in self.parts for event in part], b"")


decode_batch: Final = RowDecoder(JournalBatch, "journal").decode


def encode_batch(
    parts: Sequence[bytes],
    watermark_ms: int,
    *,
    is_end: bool,
    numbers: Sequence[DeviceNumbers],
    installs: Installs = (),
) -> bytes:
    """Encode what a commit takes: the ``encoded`` of its batches, in order.

    The watermark is the partition's before it; ``is_end``: the source's natural end follows. For
    the others see ``JournalBatch``.
    """
    row = (watermark_ms, is_end, [msgspec.Raw(part) for part in parts], numbers)
    return encode_row((*row, installs) if installs else row)
