"""A reader of a source whose partitions are assigned to its host at any time.

An ``Assignment`` does for such a source what a consumer group does for a topic: it sets the
partitions of a host. The reader applies it between two reads, in the host's thread. It makes the
host close removed partitions and open new ones, then reads on from the offsets of all.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Condition
from typing import Any, Final, NamedTuple

from walle_stream.clock import monotonic_ms
from walle_stream.errors import SourceMovedError, WalleError
from walle_stream.ports import Placement, Source, SourceBatch, SourceReader, Unread
from walle_stream.types import Placing

_WAIT_S: Final = 0.02
_REVOKE_MS: Final = 10_000.0

type _Open = Callable[[Mapping[int, bytes], Sequence[int]], SourceReader]


class Placed(NamedTuple):
    """Partitions of a host as of a generation."""

    generation: int = 0
    numbers: frozenset[int] = frozenset()


class Held(NamedTuple):
    """State of a host's assignment."""

    placed: Placed = Placed()
    """The last applied placement, with the numbers of opened partitions only."""
    wanted: Placed = Placed()
    """The last given placement."""
    is_ended: bool = True
    """Whether all opened partitions were read to the source's natural end."""
    taken_in: int = 0
    """Generation, or a later one, in which another host had a wanted partition; 0 for none."""


class Assignment:
    """The partitions of a host; for any thread."""

    def __init__(self) -> None:
        """Begin without partitions."""
        self._condition = Condition()
        self._held = Held()
        self._is_last = False

    def place(self, generation: int, numbers: Collection[int]) -> None:
        """Give the host these partitions and no others; an earlier generation is ignored."""
        with self._condition:
            if generation > self._held.wanted.generation:
                wanted = Placed(generation, frozenset(numbers))
                self._held = self._held._replace(wanted=wanted)
                self._condition.notify_all()

    def finish(self) -> None:
        """Let the reader end with its source, because no further placement comes."""
        with self._condition:
            self._is_last = True
            self._condition.notify_all()

    @property
    def held(self) -> Held:
        """State of the host's assignment."""
        return self._held

    @property
    def is_last(self) -> bool:
        """Whether no further placement comes."""
        return self._is_last

    def tell(self, **news: Any) -> None:
        """Update the host's state with fields of ``Held``."""
        with self._condition:
            self._held = self._held._replace(**news)

    def wait(self, obeyed: int) -> None:
        """Wait some milliseconds at most for another generation, or for the last one."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._is_last or self._held.wanted.generation != obeyed, _WAIT_S
            )


class AssignedSource:
    """A ``ports.PlacingSource`` whose group is an assignment."""

    is_placed = True

    def __init__(self, source: Source, count: int, placing: Placing, to: Assignment) -> None:
        """Wrap a source that ``reads_apart``, with ``count`` partitions."""
        self.partition_count = count
        self._source, self._placing, self._assignment = source, placing, to

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the source, whose identity this source has."""
        return getattr(self._source, name)

    def join(
        self, placement: Placement, batch_events: int, limit: int | None = None
    ) -> "AssignedReader":
        """Open a reader without partitions; see ``ports.PlacingSource.join``."""

        def open_parts(offsets: Mapping[int, bytes], numbers: Sequence[int]) -> SourceReader:
            count = self.partition_count
            return self._source.open(offsets, count, batch_events, limit, self._placing, numbers)

        return AssignedReader(placement, open_parts, self._assignment, batch_events)


class AssignedReader:
    """Implements ``ports.SourceReader``."""

    def __init__(
        self, placement: Placement, open_parts: _Open, to: Assignment, batch_events: int
    ) -> None:
        """Begin without partitions."""
        self.batch_events = batch_events
        self.keeps_raw = self.is_urgent = False
        self._placement, self._open, self._assignment = placement, open_parts, to
        self._obeyed = 0  # generation
        self._offsets: dict[int, bytes] = {}
        self._reader: SourceReader | None = None
        self._is_drained = False

    def read(self) -> Sequence[SourceBatch]:
        """Return the next batches; may block to open and close partitions.

        Raises:
            SourceError: The source cannot be read further.
            WalleError: A partition cannot be opened or closed.
        """
        wanted = self._assignment.held.wanted
        if wanted.generation != self._obeyed:
            self._obey(wanted)
        reader = self._reader
        if reader is None or reader.is_done:
            self._assignment.tell(is_ended=True)
            if not self.is_done and not self.is_urgent:
                self._assignment.wait(self._obeyed)
            return ()
        reader.batch_events, reader.is_urgent = self.batch_events, self.is_urgent
        return self._noted(reader.read())

    def drain(self) -> Sequence[SourceBatch]:
        """Return batches that were read but not yet returned."""
        self._is_drained = True
        return () if self._reader is None else self._noted(self._reader.drain())

    @property
    def is_done(self) -> bool:
        """Whether all batches were returned, and the assignment is final."""
        if self._is_drained:
            return True
        assignment = self._assignment
        is_settled = assignment.is_last and assignment.held.wanted.generation == self._obeyed
        return is_settled and (self._reader is None or self._reader.is_done)

    @property
    def progress(self) -> float:
        """Share of the host's partitions that was read; see ``ports.SourceReader``."""
        return -1.0 if self._reader is None else self._reader.progress

    @property
    def unread(self) -> Unread:
        """Unread input of the host's partitions; for any thread."""
        return Unread() if self._reader is None else self._reader.unread

    def close(self) -> None:
        """Close the source, but not the host's partitions; may be called twice."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _obey(self, wanted: Placed) -> None:
        self.close()  # rows that were read ahead are read again
        gone = sorted(self._offsets.keys() - wanted.numbers)
        self._placement.revoke(gone, monotonic_ms() + _REVOKE_MS)
        for number in gone:
            del self._offsets[number]
        taken_in = self._add(sorted(wanted.numbers - self._offsets.keys()), wanted.generation)
        own = frozenset(self._offsets)
        self._obeyed = wanted.generation
        self._assignment.tell(
            placed=wanted._replace(numbers=own), is_ended=False, taken_in=taken_in
        )
        if own:
            known = {number: at for number, at in self._offsets.items() if at}
            self._reader = self._open(known, sorted(own))
            self._reader.keeps_raw = self.keeps_raw

    def _add(self, numbers: Sequence[int], generation: int) -> int:
        try:
            offsets = self._placement.assign(numbers, generation)
        except SourceMovedError as error:
            self._placement.lose(numbers)
            return error.generation
        except WalleError:
            self._placement.lose(numbers)
            raise
        self._offsets |= {number: offsets.get(number, b"") for number in numbers}
        return 0

    def _noted(self, batches: Sequence[SourceBatch]) -> Sequence[SourceBatch]:
        for batch in batches:
            self._offsets[batch.partition] = batch.offset
        return batches
