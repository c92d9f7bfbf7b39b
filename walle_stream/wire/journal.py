"""Rows of a partition's journal: batches whose effects are not all in the store yet.

A row is MessagePack, ``[1, [watermark before, is_end, [part, ...], [numbers, ...]]]``. A part is
an array of events, each a map of the fields of ``Event`` by name. Numbers are ``[device id, next
sequence number, next number of a call]``. ``[[device id, task set], ...]`` follows if task sets
were installed. Events are written whole, because a projection to the fields that tasks read
would cost more than the bytes.
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
"""(device id, id of its new task set), in order."""


class JournalBatch(msgspec.Struct, array_like=True, frozen=True):
    """The input of one commit, which the core takes again after a crash."""

    watermark_ms: int
    """Watermark of the partition before the commit."""
    is_end: bool
    """Whether the source's natural end follows."""
    parts: list[list[Event]]
    """Events in the partition's order."""
    numbers: list[DeviceNumbers]
    """Numbers after the commit of the devices whose scripts emitted or called, because the
    events alone do not give them."""
    installs: Installs = ()
    """Installations after the events."""

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
    """Encode the input of a commit: the ``encoded`` of its batches, in order.

    The watermark is the partition's before the commit. ``is_end`` means that the source's natural
    end follows. ``JournalBatch`` describes the others.
    """
    row = (watermark_ms, is_end, [msgspec.Raw(part) for part in parts], numbers)
    return encode_row((*row, installs) if installs else row)
