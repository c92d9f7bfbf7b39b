"""The seams: what the core needs from the outside, as protocols.

Adapters live in ``walle_connectors`` and in users' own packages; each subclass
of the conformance suites in ``walle_stream.testing`` proves one of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, Literal, Protocol

import msgspec

from walle_stream.events import Event
from walle_stream.wire.graph import Constant, Graph

type DeadLetterRoute = Literal["decode", "oversized", "invalid", "late", "task", "overflow"]
"""Why a record or an event left the main path: the named routes.

``decode``: not CSV or JSON; ``oversized``: over the record limit; ``invalid``:
no device, time or page, or a failed expression; ``late``: below what was
already released; ``task``: the script raised; ``overflow``: a page had more
events than allowed."""


type Holds = Literal["record", "page", "message"]
"""What a letter's record is: the source's, the page that a task was given, or a message that
came down; only the first can be given to the source again."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A record or event that could not be processed, kept with the reason."""

    route: DeadLetterRoute
    reason: str
    """One line for a person."""
    origin: str
    """Where it came from: ``file.csv:17``, or ``device@position`` in a stream."""
    device_id: str = ""
    task: str = ""
    error: str = ""
    """Class of the exception, when there was one."""
    raw: str = ""
    """The beginning of the record (at most 1,024 characters)."""
    digest: str = ""
    """blake2b-128 of the whole record, hexadecimal."""
    attempts: int = 0
    """How often a run was tried; 0 for what is no run, and in letters of earlier versions."""
    holds: Holds = "record"
    size_bytes: int = 0
    """Of the whole record; 0 where it is not known."""
    record: bytes = b""
    """The record itself, at most ``RECORD_MAX_BYTES`` of it; never in the letter's JSON."""


RECORD_MAX_BYTES: Final = 1024 * 1024
"""How much of a record is kept with its dead letter."""


class KeptLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as a partition keeps it: with what names it for ever."""

    letter: DeadLetter
    pipeline: str
    incarnation: str
    """Of the data directory in which the partition began."""
    partition: int
    number: int
    """Of the partition's dead letters, from 1."""

    @property
    def idempotency_key(self) -> str:
        """The same for every delivery of a letter, another one for every other letter.

        Made of what was refused, not of the number: a partition that begins again elsewhere,
        at an older snapshot, gives the same letters other numbers.
        """
        letter = self.letter
        what = (letter.route, letter.origin, letter.device_id, letter.task, letter.digest)
        digest = blake2b("\0".join(what).encode(errors="replace"), digest_size=16).hexdigest()
        return f"letter/{self.incarnation}/{self.partition}/{digest}"

    @property
    def is_whole(self) -> bool:
        """Whether ``letter.record`` is all of the record, which is not empty."""
        letter = self.letter
        if letter.size_bytes and letter.size_bytes != len(letter.record):
            return False
        digest = blake2b(letter.record, digest_size=16).hexdigest()
        return bool(letter.record) and letter.digest == digest


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


class SourceBatch(msgspec.Struct):
    """Events of one partition, in its order, with the offset behind them."""

    partition: int
    events: list[Event]
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


class SourceReader(Protocol):
    """A source that was opened at its partitions' offsets."""

    batch_events: int
    """Most events in a batch, ≥ 1; the reader's owner may change it between reads, for what
    is read from then on."""
    keeps_raw: bool
    """Whether batches carry their raw rows; false at first. The reader's owner may set it
    before the first read, where bytes are to be compared."""

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
        ...

    def drain(self) -> Sequence[SourceBatch]:
        """Return what was read but not yet returned, because reading stops here.

        Called once, after a limit or a signal; releases nothing that waits
        for its time. Not called when ``is_done`` became true by itself.
        """
        ...

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit was reached and all was returned."""
        ...

    @property
    def progress(self) -> float:
        """Share of the source that was read, 0–1; below 0 when unknown."""
        ...

    def close(self) -> None:
        """Release files and connections; may be called twice."""
        ...


class Source(Protocol):
    """Where behaviour events come from."""

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """What identifies the source's content, kept in the data directory.

        The host hands the stored one to ``check_fingerprint`` at every start.
        """
        ...

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse a source that is not the one the data directory was made from.

        Raises:
            SourceChangedError: The content differs.
        """
        ...

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
    ) -> SourceReader:
        """Open at the partitions' committed offsets.

        Args:
            offsets: The last committed offset of each partition that has one;
                a partition without begins at the beginning.
            partition_count: Number of partitions of the data directory.
            batch_events: Most events in one batch at first, ≥ 1.
            limit: Most rows to read in this run; None for no limit.

        Raises:
            SourceError: The source cannot be opened, or an offset is not its.
        """
        ...


class Placement(Protocol):
    """The host of a source that places partitions; see ``PlacingSource``.

    Called by the reader, in the thread of its ``read`` and ``close``.
    """

    def assign(self, partitions: Sequence[int], generation: int) -> Mapping[int, bytes]:
        """Open partitions, which nobody else has from now on; blocks on the store.

        Args:
            partitions: New ones.
            generation: Of the group; grows with every placement, and goes into the
                epoch of what the partitions send.

        Returns:
            The committed offset of each that has one.

        Raises:
            WalleError: One cannot be opened; the source must not be read on.
        """
        ...

    def revoke(self, partitions: Sequence[int], deadline_ms: float) -> None:
        """Commit what was delivered of partitions and close them; blocks.

        When it returns they are somebody else's, in whatever state they are.

        Args:
            partitions: Assigned before.
            deadline_ms: Monotonic clock by which it must have returned.
        """
        ...

    def lose(self, partitions: Sequence[int]) -> None:
        """Close partitions without a commit: somebody else has them already.

        Args:
            partitions: Assigned before.
        """
        ...


class PlacingSource(Source, Protocol):
    """A source whose own group protocol may say which host has which partition."""

    @property
    def is_placed(self) -> bool:
        """Whether it does; else it is opened as any other."""
        ...

    @property
    def partition_count(self) -> int:
        """How many partitions it has; asks the source, and blocks.

        Raises:
            SourceError: It cannot be asked.
        """
        ...

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
        ...


class Uplink(Protocol):
    """The device side of the tunnel's way up. Thread-safe."""

    def send(self, partition: int, number: int, frame: bytes) -> None:
        """Hand a frame over; it is durable only when ``acks`` names it.

        Blocks while more than the bound of bytes is unacknowledged.

        Args:
            partition: The sending partition.
            number: The frame's number in the partition's outbox.
            frame: An envelope of ``walle_stream.wire``.

        Raises:
            TunnelClosedError: The tunnel was closed.
        """
        ...

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers acknowledged since the last call; never blocks."""
        ...

    def close(self) -> None:
        """Flush what can be flushed within the adapter's bound, then close."""
        ...


class DeviceTunnel(Uplink, Protocol):
    """The device side of a tunnel whose cloud side is another program's."""

    def relax(self) -> None:
        """Let no sender wait any more, because the run was asked to stop.

        May be called in a signal's handler. What is not sent has no acknowledgement and is
        sent by the next run; of a partition nothing is sent behind what was not.
        """
        ...

    @property
    def downlink(self) -> "Downlink":
        """The way down."""
        ...


class UplinkReceiver(Protocol):
    """The cloud side of the tunnel's way up. One thread.

    What travels up is in order within a lane: a log that is one has lane 0, a topic a
    lane per partition.
    """

    def receive(
        self, positions: Mapping[int, int], max_bytes: int
    ) -> Sequence[tuple[int, int, bytes]]:
        """Return frames behind the positions: (lane, position, envelope).

        In order within each lane. Never blocks for new frames; returns an empty
        sequence when none is there. At least one frame is returned if there is
        one, whatever its size.

        Args:
            positions: By lane, the last position that the caller has merged; a lane
                that is not named begins at its beginning.
            max_bytes: Stop after this many bytes.
        """
        ...

    def release(self, lane: int, position: int) -> None:
        """Allow the tunnel to forget frames of a lane up to this position (inclusive)."""
        ...


class DownlinkSender(Protocol):
    """The cloud side of the tunnel's way down. Thread-safe."""

    def send(self, partition: int, device_id: str, kind: str, payload: bytes) -> int:
        """Hand over a message for a device; durable when this returns.

        Args:
            partition: The device's partition.
            device_id: The device.
            kind: What it is, for the receiver.
            payload: JSON.

        Returns:
            Its sequence number: per device, contiguous from 1.
        """
        ...


class Downlink(Protocol):
    """The device side of the tunnel's way down. Thread-safe."""

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages of a partition behind a position; never blocks.

        Args:
            partition: Whose devices.
            position: The last position committed with the devices' state.
            max_bytes: Stop after this many bytes; at least one is returned.
        """
        ...

    def release(self, partition: int, position: int) -> None:
        """Allow the tunnel to forget messages up to this position (inclusive)."""
        ...


class DeadLetterSink(Protocol):
    """Where dead letters go besides the data directory. Thread-safe."""

    def send(self, kept: KeptLetter) -> None:
        """Hand a letter over; it is durable only when ``acks`` names it.

        Never blocks: who sends bounds what is on its way. A letter that was not
        acknowledged is sent again by the next run, with the same idempotency key.

        Args:
            kept: Committed in its partition.
        """
        ...

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers acknowledged since the last call; never blocks.

        In any order: a letter needs no other one before it.

        Args:
            partition: Whose.

        Raises:
            WalleError: The sink takes nothing any more.
        """
        ...

    def close(self) -> None:
        """Send what can be sent within the adapter's bound, then close; may be called twice."""
        ...


class DeadLetterArchive(Protocol):
    """What a sink has taken, for giving records to their source again. One thread; blocks."""

    def replayed(self) -> set[str]:
        """Return the idempotency keys of letters that were marked."""
        ...

    def letters(self) -> Iterator[KeptLetter]:
        """Iterate over what is there when it is called; a letter may come more than once."""
        ...

    def mark(self, idempotency_keys: Sequence[str]) -> None:
        """Note that letters with these keys were replayed; durable when it returns."""
        ...

    def close(self) -> None:
        """Release connections; may be called twice."""
        ...


class RecordReturn(Protocol):
    """The way of records back into their source. One thread; blocks."""

    def put(self, kept: KeptLetter) -> None:
        """Hand over the record of a letter that holds a whole one of the source."""
        ...

    def flush(self) -> None:
        """Wait until everything that was put is durable.

        Raises:
            WalleError: Something of it is not.
        """
        ...

    def close(self) -> None:
        """Release connections; may be called twice."""
        ...


class TensorEvaluator(Protocol):
    """Evaluates tensor expressions of guests. Thread-safe; may block."""

    def evaluate(self, graph: Graph) -> list[Constant]:
        """Compute the outputs of a request.

        The result depends on the request alone, so that a run that is repeated
        gives the same.

        Args:
            graph: Its inputs were checked; operators, shapes and sizes were not.

        Returns:
            One value per output, in order.

        Raises:
            TensorError: It cannot be evaluated; told to the script.
        """
        ...
