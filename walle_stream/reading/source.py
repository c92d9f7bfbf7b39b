"""A source whose readers have lanes: its identity, and opening it anywhere."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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


class LaneSource(ABC):
    """Base of sources; implements ``ports.Source``."""

    name: str
    """What it is called in messages."""

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

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
        placing: Placing = partition_of,
    ) -> SourceReader:
        """Open it at the partitions' offsets; see ``ports.Source.open``.

        Raises:
            SourceError: It cannot be opened, or an offset is not its.
        """
        numbers = range(partition_count)
        return self._reader(Opening(offsets, numbers, batch_events, limit, placing))

    @abstractmethod
    def _reader(self, opening: Opening) -> SourceReader:
        """Open it; as ``open``."""
