"""A source whose readers have lanes: its identity, and its opening at any offset."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from walle_stream.errors import SourceChangedError
from walle_stream.ports import SourceReader
from walle_stream.types import Placing, partition_of


class Opening(NamedTuple):
    """Arguments for opening a source; see ``ports.Source.open``."""

    offsets: Mapping[int, bytes]
    numbers: Sequence[int]
    """All partitions."""
    batch_events: int
    limit: int | None = None
    placing: Placing = partition_of
    wanted: Sequence[int] | None = None
    """Partitions whose batches are returned; None for all."""

    @property
    def own(self) -> Sequence[int]:
        """The wanted partitions."""
        return self.numbers if self.wanted is None else self.wanted

    @property
    def own_limit(self) -> int | None:
        """Even share of the limit for the wanted partitions, if rows have no common order."""
        if self.limit is None or self.wanted is None:
            return self.limit
        each, more = divmod(self.limit, len(self.numbers))
        return sum(each + (number < more) for number in self.wanted)


class LaneSource(ABC):
    """Base of sources; implements ``ports.Source``."""

    name: str
    """Name of the source in messages."""
    reads_apart: ClassVar[bool] = False
    """See ``ports.Source.reads_apart``."""

    @property
    @abstractmethod
    def fingerprint(self) -> Mapping[str, str | int]:
        """Identity of the content; see ``ports.Source.fingerprint``."""

    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Return the difference from a stored fingerprint as text; empty if they are equal."""
        return "" if dict(stored) == dict(self.fingerprint) else "it gives other events"

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse a source other than the one of the data directory.

        Raises:
            SourceChangedError: The content differs.
        """
        difference = self.difference(stored)
        if difference:
            raise SourceChangedError(
                f"{self.name} is not the one that the data directory was made from: {difference}. "
                "Give the same source, or a new --data-dir"
            )

    def check_placing(self, partition_count: int, placing: Placing) -> None:  # noqa: B027 - most sources accept any
        """Accept any placing; see ``ports.Source.check_placing``."""

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
        placing: Placing = partition_of,
        numbers: Sequence[int] | None = None,
    ) -> SourceReader:
        """Open the source at the partitions' offsets; see ``ports.Source.open``.

        Raises:
            SourceError: The source cannot be opened, or an offset is of another source.
        """
        every = range(partition_count)
        return self._reader(Opening(offsets, every, batch_events, limit, placing, numbers))

    @abstractmethod
    def _reader(self, opening: Opening) -> SourceReader:
        """Open a reader; see ``open``."""
