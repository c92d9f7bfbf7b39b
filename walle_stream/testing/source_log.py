"""Logs of a source's output by partition, taken as by commits, to compare and to resume.

They serve ``source_suite`` and the adapters' own tests.
"""

from collections.abc import Sequence

import msgspec

from walle_stream.events import Event
from walle_stream.ports import DeadLetter, SourceBatch, SourceCounts, SourceReader


class PartitionLog(msgspec.Struct):
    """All output for one partition."""

    events: list[Event] = []
    counts: SourceCounts = msgspec.field(default_factory=SourceCounts)
    dead_letters: list[DeadLetter] = []
    ends: int = 0
    offset: bytes | None = None


type SourceLog = dict[int, PartitionLog]
"""Output of a run by partition."""


def read_out(reader: SourceReader) -> list[SourceBatch]:
    """Read until the reader is done, close it, and return all batches."""
    batches: list[SourceBatch] = []
    try:
        while not reader.is_done:
            batches.extend(reader.read())
    finally:
        reader.close()
    return batches


def new_log(partition_count: int) -> SourceLog:
    """Return the log of a new data directory."""
    return {partition: PartitionLog() for partition in range(partition_count)}


def add(log: SourceLog, batches: Sequence[SourceBatch]) -> None:
    """Add batches to a log as commits would.

    Args:
        log: Log to change.
        batches: Batches in the source's order.
    """
    for batch in batches:
        own = log[batch.partition]
        own.events.extend(batch.events)
        own.dead_letters.extend(batch.dead_letters)
        own.ends += batch.is_end
        own.offset = batch.offset
        for name in SourceCounts.__struct_fields__:
            setattr(own.counts, name, getattr(own.counts, name) + getattr(batch.counts, name))


def offsets_of(log: SourceLog) -> dict[int, bytes]:
    """Return the offsets at which to resume after a log."""
    return {key: own.offset for key, own in log.items() if own.offset is not None}


def expect_same(found: SourceLog, wanted: SourceLog, what: str) -> None:
    """Compare two logs except for their offsets.

    Raises:
        AssertionError: The logs differ.
    """
    for partition, own in wanted.items():
        other = found[partition]
        for name in ("events", "counts", "dead_letters", "ends"):
            one, two = getattr(other, name), getattr(own, name)
            if one != two:
                raise AssertionError(
                    f"{what}, partition {partition}: {name} {one} instead of {two}"
                )
