"""Values of the rows in a partition's database, as MessagePack.

The partition host writes and reads them, in the commit of a batch. Each value is
an array whose first element is the layout's version, an integer. A reader refuses
an unknown version (``FormatVersionError``).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from walle_stream.errors import FormatVersionError, StoreCorruptedError
from walle_stream.wire.ledger import Ledger

ROW_VERSION: Final = 1
"""Version of every layout in this module."""


class Counters(msgspec.Struct, omit_defaults=False):
    """Counters of a partition since the data directory was made.

    They are part of every commit, and thus exactly as correct as the features.
    ``source_rows = accepted_rows + duplicate_rows + late_rows + dead_letter_rows``.
    """

    source_rows: int = 0
    accepted_rows: int = 0
    duplicate_rows: int = 0
    late_rows: int = 0
    dead_letter_rows: int = 0
    devices: int = 0
    events: int = 0
    late_events: int = 0
    duplicate_events: int = 0
    page_sequences: int = 0
    timed_out_pages: int = 0
    reentered_pages: int = 0
    overflowed_pages: int = 0
    missing_enters: int = 0
    task_runs: int = 0
    task_failures: int = 0
    features: int = 0
    raw_bytes: int = 0
    feature_bytes: int = 0
    encoded_bytes: int = 0
    uplink_bytes: int = 0
    uplink_frames: int = 0
    dropped_frames: int = 0
    """Frames dropped from the outbox, by onFull and maxAge of ``spec.tunnel``."""
    dropped_features: int = 0
    """Features in dropped frames."""
    dead_letters: int = 0
    messages: int = 0
    """Downlink messages taken."""
    calls: int = 0
    """Calls of the cloud, by ``ctx.call_cloud``."""
    replies: int = 0
    """Replies to calls; missing ones are on their way."""
    dropped_messages: int = 0
    """Downlink messages without an open call, repeated, malformed, or beyond a bound."""
    commits: int = 0

    def add(self, other: msgspec.Struct) -> None:
        """Add another partition's counters, or a batch's additions to some of them."""
        for name in other.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TaskCounts(msgspec.Struct, frozen=True, array_like=True):
    """Results of a task's runs; cumulative, like ``Counters``."""

    runs: int = 0
    failures: int = 0
    """Runs that failed for good."""
    refused: int = 0
    """Failures of runs that were refused, because the task is quarantined on the device."""
    returned: int = 0
    """Runs that returned a value, which is ignored; only ``ctx.emit`` makes features."""
    failed_ms: int = 0
    """Wall clock of ``failure`` in epoch milliseconds; 0 without a failure."""
    failure: str = ""
    """``file:line: class: text`` of the first failure since the partition's last opening, or
    of an earlier opening if nothing has failed since."""

    def plus(self, other: "TaskCounts") -> "TaskCounts":
        """Return the sum with another partition's counts, or with a commit's additions."""
        newer = self if self.failed_ms >= other.failed_ms else other
        return TaskCounts(
            self.runs + other.runs,
            self.failures + other.failures,
            self.refused + other.refused,
            self.returned + other.returned,
            newer.failed_ms,
            newer.failure,
        )


class PartitionHead(msgspec.Struct):
    """Position and counters of a partition, in one row that every commit rewrites."""

    counters: Counters = msgspec.field(default_factory=Counters)
    watermark_ms: int = -1
    """Highest ingest time of the partition's events, epoch milliseconds."""
    next_frame: int = 1
    next_dead_letter: int = 1
    downlink_position: int = 0
    """Position of the last downlink message taken."""
    downlink_log: str = ""
    """Log of that position, by the tunnel's name; empty if unknown."""
    next_message: int = 1
    """Number of the next message for devices."""
    waiting_messages: int = 0
    """Messages that wait for devices that were never seen."""
    broadcast: tuple[int, str] | None = None
    """Position of a message that is being given to all devices, and the last device that has
    it; meanwhile ``downlink_position`` stays before the message."""
    next_batch: int = 1
    is_ended: bool = False
    """Whether the last batch was the source's natural end."""
    ledger: Ledger = Ledger()
    """Bytes that each task sent; empty in older data directories without a ledger."""
    task_sets: dict[str, int] = {}
    """Number of devices for each installed set of tasks, by its id."""
    tasks: dict[str, TaskCounts] = {}
    """Results of each task's runs, by its name."""

    def copied(self) -> "PartitionHead":
        """Return a copy for changes, because a failed commit must not change the counters."""
        return msgspec.structs.replace(self, counters=msgspec.structs.replace(self.counters))


def add_tasks(
    tasks: Mapping[str, TaskCounts], added: Mapping[str, TaskCounts]
) -> dict[str, TaskCounts]:
    """Return the sum by task."""
    return {
        **tasks,
        **{name: counts.plus(tasks.get(name, _NO_RUNS)) for name, counts in added.items()},
    }


_NO_RUNS: Final = TaskCounts()
_encoder = msgspec.msgpack.Encoder()


def encode_row(value: Any) -> bytes:
    """Encode a row's value (plain values and structs) with its version."""
    return _encoder.encode((ROW_VERSION, value))


class RowDecoder[T]:
    """Decoder of the rows of one table."""

    def __init__(self, type_: type[T], table: str) -> None:
        """Prepare for values of a type; ``table`` is for messages."""
        self._decoder = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])
        self._value = msgspec.msgpack.Decoder(type_)
        self._table = table

    def decode(self, row: bytes) -> T:
        """Decode one row.

        Raises:
            FormatVersionError: The row's layout is of another version.
            StoreCorruptedError: The row is damaged.
        """
        try:
            version, value = self._decoder.decode(row)
            if version != ROW_VERSION:
                raise FormatVersionError(
                    f"a row of table {self._table} has layout {version}, this version reads "
                    f"{ROW_VERSION}: use the version of walle_stream that wrote it"
                )
            return self._value.decode(value)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise StoreCorruptedError(
                f"a row of table {self._table} cannot be read ({error}): restore the data "
                "directory from a copy, or start with a new one"
            ) from error
