"""What the source asks of a client library: records of partitions, by columns.

``Fetcher`` is the port: its only calls while a topic is read. ``python_fetcher`` is
kafka-python's, ``confluent`` librdkafka's. Groups have a port of their own, ``group``.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import starmap
from typing import Any, Final, NamedTuple, Protocol

_RECORD_BYTES: Final = 200  # headers and objects, about


class Record(NamedTuple):
    """What is needed of a record; kafka-python's have these names, and more."""

    offset: int
    timestamp: int
    """Of its creation, or of its arrival in the broker's log: the topic says which."""
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return len(self.value or b"") + len(self.key or b"") + _RECORD_BYTES


class Records(NamedTuple):
    """Records of one partition in its order, column by column: they are decoded in bulk."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Sequence[tuple[str, bytes | None]]] = ()
    """Empty where the library was not asked for them."""

    def rows(self) -> Iterator[Record]:
        """Iterate record by record, in the partition's order."""
        return starmap(Record, zip(*self[: 5 if self.headers else 4], strict=True))

    def before(self, offset: int) -> "Records":
        """Return those below an offset."""
        count = bisect_left(self.offsets, offset)
        return Records(
            self.offsets[:count],
            self.timestamps[:count],
            self.keys[:count],
            self.values[:count],
            self.headers[:count],
        )


class Polled(NamedTuple):
    """What a poll gave."""

    records: Mapping[int, Records] = {}
    """By partition; none is empty."""
    gone: Sequence[int] = ()
    """Partitions whose next offset is not there; nothing more comes before ``seek``."""
    cut: Sequence[int] = ()
    """Partitions that lost records which were read, whatever they have now; as ``gone``."""
    arrived_ms: float = 0.0
    """Monotonic clock, where it was before its reader came for it."""


def columns(records: Sequence[Any], *, has_headers: bool = False) -> Records:
    """Put records of one partition, with the names of ``Record``, into columns."""
    return Records(
        [each.offset for each in records],
        [each.timestamp for each in records],
        [each.key for each in records],
        [each.value for each in records],
        [each.headers for each in records] if has_headers else (),
    )


class Fetcher(Protocol):
    """Fetches records of partitions of one topic, by their numbers. One thread."""

    def assign(self, numbers: Sequence[int]) -> None:
        """Take partitions; each is sought before the first poll."""

    def begin_anew(self) -> None:
        """Read another topic of that name: it was made again; each is sought before a poll."""

    def seek(self, number: int, offset: int) -> None:
        """Say what comes next of a partition."""

    def pause(self, number: int) -> None:
        """Fetch nothing of a partition."""

    def resume(self, number: int) -> None:
        """Fetch on, from where it was sought; nothing happens to one that was not paused."""

    def position(self, number: int) -> int | None:
        """Return what comes next, behind offsets of no record; None where it is not known."""

    def end(self, number: int) -> int:
        """Return what is behind the newest record, as of the last fetch; -1 if not known."""

    def poll(self, wait_ms: int, most: int) -> Polled:
        """Return records as soon as there are any; a broker that is away is no error.

        ``wait_ms`` is for the first one; ``most`` is of all partitions together, ≥ 1.

        Raises:
            SourceError: The topic cannot be read on.
        """

    def close(self) -> None:
        """Disconnect; may be called twice."""
