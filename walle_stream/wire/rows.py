"""Values of the rows that a partition's database holds, as MessagePack.

The partition host writes and reads them, in the commit of a batch. Each
is an array whose first element is the layout's version, an integer; a reader
refuses what it does not know (``FormatVersionError``).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from walle_stream.errors import FormatVersionError, StoreCorruptedError
from walle_stream.wire.ledger import Ledger

ROW_VERSION: Final = 1
"""Version of every layout in this module."""


class Counters(msgspec.Struct, omit_defaults=False):
    """What happened in a partition since the data directory was made.

    Part of every commit, so it is exactly as true as the features are.
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
    """Of the outbox, by ``spec.tunnel``'s onFull and maxAge."""
    dropped_features: int = 0
    """In them."""
    dead_letters: int = 0
    messages: int = 0
    """Downlink messages taken."""
    calls: int = 0
    """Of the cloud, by ``ctx.call_cloud``."""
    replies: int = 0
    """To calls; what is missing is on its way."""
    dropped_messages: int = 0
    """Downlink messages that answer no open call, came twice, were malformed or too many."""
    commits: int = 0

    def add(self, other: msgspec.Struct) -> None:
        """Add another partition's counters to these, or what a batch adds to some of them."""
        for name in other.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class TaskCounts(msgspec.Struct, frozen=True, array_like=True):
    """What became of a task's runs; cumulative, as ``Counters`` are."""

    runs: int = 0
    failures: int = 0
    """Runs that failed for good."""
    refused: int = 0
    """Of the failures, those that were not let begin: the task is quarantined on the device."""
    returned: int = 0
    """Runs that returned a value, which nobody takes: ``ctx.emit`` makes features."""
    failed_ms: int = 0
    """When ``failure`` happened: wall clock, epoch milliseconds; 0 when nothing failed."""
    failure: str = ""
    """``file:line: class: text`` of the first failure since the partition was opened last, or
    of an earlier opening where nothing has failed since."""

    def plus(self, other: "TaskCounts") -> "TaskCounts":
        """Return the sum with another partition's, or with what a commit adds."""
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
    """One row per partition, rewritten by every commit: where it stands."""

    counters: Counters = msgspec.field(default_factory=Counters)
    watermark_ms: int = -1
    """Highest ingest time of the partition's events, epoch milliseconds."""
    next_frame: int = 1
    next_dead_letter: int = 1
    downlink_position: int = 0
    """Position of the last downlink message taken."""
    downlink_log: str = ""
    """Which log that position is of, as the tunnel names it; empty where it is not known."""
    next_message: int = 1
    """Number of the next message for devices."""
    waiting_messages: int = 0
    """Of those, how many wait for devices that were never seen."""
    broadcast: tuple[int, str] | None = None
    """Position of the message that is being given to all devices, and the last one that has it;
    ``downlink_position`` stays before it meanwhile."""
    next_batch: int = 1
    is_ended: bool = False
    """Whether the last batch was the source's natural end."""
    ledger: Ledger = Ledger()
    """What each task sent; empty in data directories that had none yet."""
    task_sets: dict[str, int] = {}
    """How many devices have each set of tasks that was installed, by its id."""
    tasks: dict[str, TaskCounts] = {}
    """What became of each task's runs, by its name."""

    def copied(self) -> "PartitionHead":
        """Return a copy to change: a failed commit must leave the counters as they were."""
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
    """Decodes the rows of one table."""

    def __init__(self, type_: type[T], table: str) -> None:
        """Prepare."""
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
