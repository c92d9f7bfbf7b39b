"""Where events come from: a source, its readers, and who has which partition."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from walle_stream.ports.letters import DeadLetter
from walle_stream.ports.unread import Unread
from walle_stream.types import Placing, partition_of
from walle_stream.wire.event_batch import EventBatch


class SourceCounts(msgspec.Struct):
    """What a batch adds to the counters of its partition.

    ``source = accepted + duplicate + late + dead_letter``, always.
    """

    source_rows: int = 0
    accepted_rows: int = 0
    duplicate_rows: int = 0
    late_rows: int = 0
    dead_letter_rows: int = 0
    raw_bytes: int = 0
    """Bytes of the rows as the source had them (uncompressed)."""


class Origins(NamedTuple):
    """Which record of the source each event of a batch came in."""

    source: str
    """A topic's partition: ``topic[3]``."""
    numbers: Sequence[int]
    """By event: the offset."""
    traces: Mapping[int, str] = {}
    """By offset: the trace context of records that carry one and are asked for it."""

    def of(self, index: int) -> str:
        """Return the record of an event of the batch, as dead letters name it."""
        return f"{self.source}@{self.numbers[index]}"


class SourceBatch(msgspec.Struct):
    """Events of one partition, in its order, with the offset behind them."""

    partition: int
    events: EventBatch
    offset: bytes
    """Opaque resume token of the partition AFTER this batch; committed with
    the batch's effects in one write batch and handed back at ``open``."""
    counts: SourceCounts
    dead_letters: list[DeadLetter]
    is_end: bool = False
    """The natural end of a bounded source lies behind these events: every
    time-out fires. Never set because of a limit or a signal."""
    size_bytes: int = 0
    """Approximate memory of the batch, for back-pressure in bytes."""
    raw: bytes | None = None
    """The batch's rows as the source had them, end to end with their line ends:
    what ``counts.raw_bytes`` counts, but for the rest of rows that are too long.
    None unless the reader ``keeps_raw``, and where the batch has no rows."""
    arrived_ms: float | None = None
    """Monotonic clock (``walle_stream.clock``) when the oldest of the events arrived at the
    source, from which latencies count; None where that is when the batch is handed over."""
    origins: Origins | None = None
    """Of the events, for dead letters; None where the source has no such names."""


class SourceReader(Protocol):
    """A source that was opened at its partitions' offsets."""

    batch_events: int
    """Most events in a batch, ≥ 1; the reader's owner may change it between reads, for what
    is read from then on. A reader that reads all partitions at once counts them together, and
    hands out what it has of each."""
    keeps_raw: bool
    """Whether batches carry their raw rows; false at first. The reader's owner may set it
    before the first read, where bytes are to be compared."""
    is_urgent: bool
    """Whether a read should come back at once where nothing has come, as its owner waits for
    something else, too; false at first. The owner sets it between reads."""

    def read(self) -> Sequence[SourceBatch]:
        """Read on and return the batches that are ready.

        Run by one thread, which may be the device host's: it may block on I/O for
        some milliseconds, no longer, since commits wait for it. Each event of each
        partition comes exactly once, in the partition's order, beginning
        behind the offset given at ``open``. How events are cut into batches
        is free and must not matter. An empty sequence with ``is_done`` false
        means "nothing yet".

        Raises:
            SourceError: The source cannot be read on.
        """

    def drain(self) -> Sequence[SourceBatch]:
        """Return what was read but not yet returned, because reading stops here.

        Called once, after a limit or a signal; releases nothing that waits
        for its time. Not called when ``is_done`` became true by itself.
        """

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit was reached and all was returned."""

    @property
    def progress(self) -> float:
        """Share of the source that was read, 0–1; below 0 when unknown."""

    @property
    def unread(self) -> Unread:
        """What is left to read; asked for by another thread, at once."""

    def close(self) -> None:
        """Release files and connections; may be called twice."""


class Source(Protocol):
    """Where behaviour events come from."""

    @property
    def reads_apart(self) -> bool:
        """Whether a reader of some partitions reads nothing of the others.

        Else it reads everything, and N processes read the source N times.
        """

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """What identifies the source's content, kept in the data directory.

        The host hands the stored one to ``check_fingerprint`` at every start.
        """

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse a source that is not the one the data directory was made from.

        Raises:
            SourceChangedError: The content differs.
        """

    def check_placing(self, partition_count: int, placing: Placing) -> None:
        """Refuse a pipeline whose devices are in other partitions than the source has them in.

        Raises:
            SourceError: They are.
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
            offsets: The last committed offset of each partition that has one;
                a partition without begins at the beginning.
            partition_count: Number of partitions of the data directory.
            batch_events: Most events in one batch at first, ≥ 1.
            limit: Most rows to read in this run; None for no limit.
            placing: In which partition each device is. Messages go there, so a source takes no
                other; one whose records lie in partitions leaves it alone, and its connector
                tells of them as ``device_partition``, a ``Placing``.
            numbers: The partitions that are wanted: no batch is of another; None for all. A limit
                counts the rows of all, from the offsets of all.

        Raises:
            SourceError: The source cannot be opened, or an offset is not its.
        """


class Placement(Protocol):
    """The host of a source that places partitions; see ``PlacingSource``.

    Called by the reader, in the thread of its ``read`` and ``close``.
    """

    incarnation: str
    """Of the data directory where state is kept: its partitions' readers name it to the group."""

    may_begin_anew: bool
    """Whether a partition that the group has read before, but that has no offset here, may
    begin at its beginning: where state follows its partition, nothing was kept of it."""

    def assign(self, partitions: Sequence[int], generation: int) -> Mapping[int, bytes]:
        """Open partitions, which nobody else has from now on; blocks on the store.

        Args:
            partitions: New ones.
            generation: Of this placement, ≥ 1; higher than that of any owner before, as far
                as the group knows. It goes into the epoch of what the partitions send.

        Returns:
            The committed offset of each that has one.

        Raises:
            SourceMovedError: One has been opened in this generation or a later one; some may be
                open now.
            WalleError: One cannot be opened; the source must not be read on.
        """

    def revoke(self, partitions: Sequence[int], deadline_ms: float) -> None:
        """Commit what was delivered of partitions and close them; blocks.

        What cannot be committed in time is dropped: it is read again by whoever gets them. When it
        returns they are somebody else's, in whatever state they are. The deadline is of the
        monotonic clock.
        """

    def lose(self, partitions: Sequence[int]) -> None:
        """Close partitions without a commit: somebody else has them already."""

    def settle(self) -> bool:
        """Take what came down for the partitions; waits for nothing.

        Returns:
            Whether every call of the cloud has its reply, and all messages were taken. A bounded
            reader keeps its partitions until then, for some seconds: nobody else would take them.
        """


class PlacingSource(Source, Protocol):
    """A source whose own group protocol may say which host has which partition."""

    @property
    def is_placed(self) -> bool:
        """Whether it does; else it is opened as any other."""

    @property
    def partition_count(self) -> int:
        """How many partitions it has; asks the source, and blocks.

        Raises:
            SourceError: It cannot be asked.
        """

    def join(
        self, placement: Placement, batch_events: int, limit: int | None = None
    ) -> SourceReader:
        """Become a member of the group; partitions come with the first reads.

        Between two reads less must pass than the group's patience, or the partitions go
        to somebody else. A reader closes by leaving the group: what it had is revoked.

        Args:
            placement: Opens and closes partitions. Batches of a partition come only
                between its ``assign`` and its ``revoke`` or ``lose``.
            batch_events: Most events in one batch at first, ≥ 1.
            limit: Most rows to read in this run; None for no limit.

        Raises:
            SourceError: The source cannot be joined.
        """
