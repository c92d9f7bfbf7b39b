"""Sources of events, their readers, and the placement of partitions on hosts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from walle_stream.ports.letters import DeadLetter
from walle_stream.ports.unread import Unread
from walle_stream.types import Placing, partition_of
from walle_stream.wire.event_batch import EventBatch


class SourceCounts(msgspec.Struct):
    """Additions of a batch to the counters of its partition.

    ``source = accepted + duplicate + late + dead_letter``, always.
    """

    source_rows: int = 0
    accepted_rows: int = 0
    duplicate_rows: int = 0
    late_rows: int = 0
    dead_letter_rows: int = 0
    raw_bytes: int = 0
    """Bytes of the rows in the source (uncompressed)."""


class Origins(NamedTuple):
    """The source's record of each event of a batch."""

    source: str
    """A topic's partition: ``topic[3]``."""
    numbers: Sequence[int]
    """Offset of each event's record."""
    traces: Mapping[int, str] = {}
    """Trace contexts of records by offset, if the records carry them and tracing is on."""

    def of(self, index: int) -> str:
        """Return the name of an event's record, as in dead letters."""
        return f"{self.source}@{self.numbers[index]}"


class SourceBatch(msgspec.Struct):
    """Events of one partition, in its order, with the offset after them."""

    partition: int
    events: EventBatch
    offset: bytes
    """Opaque resume token of the partition AFTER this batch. It is committed with the
    batch's effects in one write batch, and given back at ``open``."""
    counts: SourceCounts
    dead_letters: list[DeadLetter]
    is_end: bool = False
    """Whether the natural end of a bounded source follows these events, so that every
    timeout fires. Never set because of a limit or a signal."""
    size_bytes: int = 0
    """Approximate memory of the batch, for back-pressure in bytes."""
    raw: bytes | None = None
    """The batch's raw rows with their line ends, end to end. ``counts.raw_bytes`` counts
    them, and the rest of rows that are too long. None unless the reader ``keeps_raw``, and
    for a batch without rows."""
    arrived_ms: float | None = None
    """Monotonic time (``walle_stream.clock``) at which the oldest event arrived at the source,
    from which latencies count; None for the time at which the batch is returned."""
    origins: Origins | None = None
    """Records of the events, for dead letters; None if the source has no such names."""


class SourceReader(Protocol):
    """An open source at its partitions' offsets."""

    batch_events: int
    """Most events in a batch, ≥ 1. The reader's owner may change it between reads, for later
    batches. A reader that reads all partitions at once counts their events together, and
    returns a batch for each partition."""
    keeps_raw: bool
    """Whether batches carry their raw rows; false at first. The reader's owner may set it
    before the first read, to compare bytes."""
    is_urgent: bool
    """Whether a read without input should return at once, because its owner also waits for
    something else; false at first. The owner sets it between reads."""

    def read(self) -> Sequence[SourceBatch]:
        """Read more and return the batches that are ready.

        One thread calls it, perhaps the device host's. The call may block on I/O for a
        few milliseconds at most, because commits wait for it. Each event of each partition
        comes exactly once, in the partition's order, from the offset given at ``open`` on.
        Events may be cut into batches in any way. An empty sequence with ``is_done`` false
        means "nothing yet".

        Raises:
            SourceError: The source cannot be read further.
        """

    def drain(self) -> Sequence[SourceBatch]:
        """Return batches that were read but not yet returned, because reading stops.

        Called once, after a limit or a signal; events that wait for their time stay.
        Not called if ``is_done`` became true by itself.
        """

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit was reached and all batches were returned."""

    @property
    def progress(self) -> float:
        """Share of the source that was read, 0 to 1; below 0 if unknown."""

    @property
    def unread(self) -> Unread:
        """Unread input; another thread reads this, and it must not block."""

    def close(self) -> None:
        """Release files and connections; may be called twice."""


class Source(Protocol):
    """A source of behaviour events."""

    @property
    def reads_apart(self) -> bool:
        """Whether a reader of some partitions reads nothing of the others.

        Otherwise it reads everything, and N processes read the source N times.
        """

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """Identity of the source's content, kept in the data directory.

        The host gives the stored fingerprint to ``check_fingerprint`` at every start.
        """

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse a source other than the one of the data directory.

        Raises:
            SourceChangedError: The content differs.
        """

    def check_placing(self, partition_count: int, placing: Placing) -> None:
        """Refuse a pipeline that places devices in other partitions than the source.

        Raises:
            SourceError: The placements differ.
        """

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
        placing: Placing = partition_of,
        numbers: Sequence[int] | None = None,
    ) -> SourceReader:
        """Open at the partitions' committed offsets.

        Args:
            offsets: The last committed offset of each partition that has one. A
                partition without an offset starts at its beginning.
            partition_count: Number of partitions of the data directory.
            batch_events: Most events in one batch at first, ≥ 1.
            limit: Most rows to read in this run; None for no limit.
            placing: The partition of each device, to which its messages go. A source must use
                it, unless its records have partitions already. Such a source ignores it, and its
                connector has a ``Placing`` as ``device_partition``.
            numbers: Partitions whose batches are wanted; None for all. A limit counts the rows
                of all partitions, from the offsets of all.

        Raises:
            SourceError: The source cannot be opened, or an offset is of another source.
        """


class Placement(Protocol):
    """The host of a source that places partitions; see ``PlacingSource``.

    The reader calls it, in the thread of its ``read`` and ``close``.
    """

    incarnation: str
    """Incarnation of the data directory with the state, which readers report to the group."""

    may_begin_anew: bool
    """Whether a partition without an offset here may start at its beginning although the group
    has read it before. If state follows its partition, no state of it was kept."""

    def assign(self, partitions: Sequence[int], generation: int) -> Mapping[int, bytes]:
        """Open partitions, which from now on belong to this host only; blocks on the store.

        Args:
            partitions: The new partitions.
            generation: Generation of this placement, ≥ 1, higher than that of any former owner
                known to the group. It becomes a part of the epoch of sent frames.

        Returns:
            The committed offset of each partition that has one.

        Raises:
            SourceMovedError: A partition was opened in this generation or a later one. Some
                partitions may be open now.
            WalleError: A partition cannot be opened. The source must not be read further.
        """

    def revoke(self, partitions: Sequence[int], deadline_ms: float) -> None:
        """Commit delivered events of partitions, then close the partitions; blocks.

        Events that cannot be committed in time are dropped, and the next owner reads them again.
        After the return the partitions belong to another host, in any state. The deadline is of
        the monotonic clock.
        """

    def lose(self, partitions: Sequence[int]) -> None:
        """Close partitions without a commit, because another host has them already."""

    def settle(self) -> bool:
        """Take replies and messages for the partitions, without waiting.

        Returns:
            Whether every call of the cloud has its reply, and all messages were taken. A bounded
            reader keeps its partitions until then, for some seconds, because no other host would
            take the messages.
        """


class PlacingSource(Source, Protocol):
    """A source whose own group protocol may assign partitions to hosts."""

    @property
    def is_placed(self) -> bool:
        """Whether the group protocol assigns partitions; otherwise it opens as any source."""

    @property
    def partition_count(self) -> int:
        """Number of the source's partitions; queries the source, and blocks.

        Raises:
            SourceError: The source cannot be queried.
        """

    def join(
        self, placement: Placement, batch_events: int, limit: int | None = None
    ) -> SourceReader:
        """Become a member of the group; partitions come with the first reads.

        The time between two reads must be shorter than the group's timeout, or the partitions
        go to another host. A reader leaves the group at its close, and its partitions are revoked.

        Args:
            placement: Opens and closes partitions. Batches of a partition come only
                between its ``assign`` and its ``revoke`` or ``lose``.
            batch_events: Most events in one batch at first, ≥ 1.
            limit: Most rows to read in this run; None for no limit.

        Raises:
            SourceError: The source cannot be joined.
        """
