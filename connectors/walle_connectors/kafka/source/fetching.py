"""Port of client libraries for fetching records of partitions, column by column.

While a topic is read, the source calls the library only through ``Fetcher``. ``python_fetcher``
implements it with kafka-python, ``confluent`` with librdkafka. Groups have the port ``group``.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any, Final, NamedTuple, Protocol

_RECORD_BYTES: Final = 200  # estimate for headers and objects


class Record(NamedTuple):
    """The needed fields of a record, with kafka-python's names."""

    offset: int
    timestamp: int
    """Time of creation or of arrival in the broker's log, as the topic is set; milliseconds."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def size_bytes(self) -> int:
        """Estimated size in memory."""
        return len(self.value or b"") + len(self.key or b"") + _RECORD_BYTES


class Records(NamedTuple):
    """Records of one partition in offset order, as columns for decoding in bulk."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str, bytes | None]]] = ()
    """Empty if headers were not requested."""

    def rows(self) -> Iterator[Record]:
        """Iterate over the records in the partition's order."""
        return starmap(Record, zip(*self[: 5 if self.headers else 4], strict=True))

    def before(self, offset: int) -> "Records":
        """Return the records below an offset."""
        count = bisect_left(self.offsets, offset)
        return Records(
            self.offsets[:count],
            self.timestamps[:count],
            self.keys[:count],
            self.values[:count],
            self.headers[:count],
        )


class Polled(NamedTuple):
    """Result of a poll."""

    records: Mapping[int, Records] = {}
    """Records by partition; no entry is empty."""
    gone: Sequence[int] = ()
    """Partitions whose next offset is missing; they yield no more records before ``seek``."""
    cut: Sequence[int] = ()
    """Partitions that lost records after we read them; they also need ``seek``."""
    arrived_ms: float = 0.0
    """Arrival on the monotonic clock; 0 if the reader should take its own time."""


def columns(records: Sequence[Any], *, has_headers: bool = False) -> Records:
    """Return records of one partition, objects with the fields of ``Record``, as columns."""
    return Records(
        [each.offset for each in records],
        [each.timestamp for each in records],
        [each.key for each in records],
        [each.value for each in records],
        [each.headers for each in records] if has_headers else (),
    )


class Fetcher(Protocol):
    """Fetcher of records from numbered partitions of one topic. For one thread."""

    def assign(self, numbers: Sequence[int]) -> None:
        """Set the partitions to fetch; call ``seek`` for each before the first poll."""

    def begin_anew(self) -> None:
        """Switch to the recreated topic; call ``seek`` for each partition before a poll."""

    def seek(self, number: int, offset: int) -> None:
        """Set the next offset of a partition."""

    def pause(self, number: int) -> None:
        """Stop fetching a partition."""

    def resume(self, number: int) -> None:
        """Continue at the sought offset; no effect on a partition that is not paused."""

    def position(self, number: int) -> int | None:
        """Return the next offset, after offsets without a record; None if unknown."""

    def end(self, number: int) -> int:
        """Return the offset after the newest record, as of the last fetch; -1 if unknown."""

    def poll(self, wait_ms: int, most: int) -> Polled:
        """Return records as soon as there are any; an unreachable broker is no error.

        Waits at most ``wait_ms`` for the first record. ``most`` (≥ 1) limits all partitions
        together.

        Raises:
            SourceError: Reading of the topic failed.
        """

    def close(self) -> None:
        """Disconnect; may be called twice."""
