"""A source whose readers have lanes: its identity, and opening it anywhere."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from walle_stream.errors import SourceChangedError
from walle_stream.ports import SourceReader
from walle_stream.types import Placing, partition_of


class Opening(NamedTuple):
    """What a source is opened with; see ``ports.Source.open``."""

    offsets: Mapping[int, bytes]
    numbers: Sequence[int]
    """The partitions."""
    batch_events: int
    limit: int | None = None
    placing: Placing = partition_of
    wanted: Sequence[int] | None = None
    """Those whose batches are handed out; None: all."""

    @property
    def own(self) -> Sequence[int]:
        """The partitions that are wanted."""
        return self.numbers if self.wanted is None else self.wanted

    @property
    def own_limit(self) -> int | None:
        """Even share of the limit that the wanted ones have, where rows have no common order."""
        if self.limit is None or self.wanted is None:
            return self.limit
        each, more = divmod(self.limit, len(self.numbers))
        return sum(each + (number < more) for number in self.wanted)


class LaneSource(ABC):
    """Base of sources; implements ``ports.Source``."""

    name: str
    """What it is called in messages."""
    reads_apart: ClassVar[bool] = False
    """See ``ports.Source.reads_apart``."""

    @property
    @abstractmethod
    def fingerprint(self) -> Mapping[str, str | int]:
        """What identifies its content; see ``ports.Source.fingerprint``."""

    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Say how it differs from the source of a stored fingerprint; empty when it does not."""
        return "" if dict(stored) == dict(self.fingerprint) else "it gives other events"

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse a source that is not the one the data directory was made from.

        Raises:
            SourceChangedError: The content differs.
        """
        difference = self.difference(stored)
        if difference:
            raise SourceChangedError(
                f"{self.name} is not the one that the data directory was made from: {difference}. "
                "Give the same source, or a new --data-dir"
            )

    def check_placing(self, partition_count: int, placing: Placing) -> None:  # noqa: B027 - most take any
        """Take any, as ``open`` is told; see ``ports.Source.check_placing``."""

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
        placing: Placing = partition_of,
        numbers: Sequence[int] | None = None,
    ) -> SourceReader:
        """Open it at the partitions' offsets; see ``ports.Source.open``.

        Raises:
            SourceError: It cannot be opened, or an offset is not its.
        """
        every = range(partition_count)
        return self._reader(Opening(offsets, every, batch_events, limit, placing, numbers))

    @abstractmethod
    def _reader(self, opening: Opening) -> SourceReader:
        """Open it; as ``open``."""
