"""Rows of a partition's journal: the batches whose effects are not all in the store yet.

A row is MessagePack, ``[1, [watermark before, is_end, [event, ...]]]``; an event is
an array of ``Event``'s fields in their order, its contents projected to what the
installed tasks read.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from walle_stream.events import Event
from walle_stream.wire.rows import RowDecoder, encode_row

_decode: Final = RowDecoder(tuple[int, bool, list[tuple[Any, ...]]], "journal").decode


class JournalBatch(msgspec.Struct, frozen=True):
    """A batch, as the machine is given it again."""

    watermark_ms: int
    """Of the partition, before it."""
    is_end: bool
    """Whether the source's natural end follows."""
    events: list[Event]
    """In the partition's order."""


def encode_batch(
    events: Sequence[Event], fields: frozenset[str] | None, watermark_ms: int, *, is_end: bool
) -> bytes:
    """Encode a batch.

    Args:
        events: In the partition's order.
        fields: Names of contents to keep; None keeps all.
        watermark_ms: Of the partition, before it.
        is_end: Whether the source's natural end follows.
    """
    rows = []
    for event in events:
        contents = event.contents
        if fields is not None and contents and not fields.issuperset(contents):
            contents = {name: contents[name] for name in contents if name in fields}
        rows.append(
            (
                event.device_id,
                event.id,
                event.kind,
                event.page_id,
                event.page_instance,
                event.event_time_ms,
                event.ingest_time_ms,
                contents,
                event.uid,
            )
        )
    return encode_row((watermark_ms, is_end, rows))


def decode_batch(row: bytes) -> JournalBatch:
    """Decode a row.

    Raises:
        FormatVersionError: Its layout is of another version.
        StoreCorruptedError: It is damaged.
    """
    watermark_ms, is_end, rows = _decode(row)
    return JournalBatch(watermark_ms, is_end, [Event(*fields) for fields in rows])
