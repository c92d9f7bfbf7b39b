"""How far the partitions of a life's hosts are, read from their databases."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.errors import StoreMissingError
from walle_stream.store.partition import PartitionStore


class _Standing(NamedTuple):
    epoch: int = 0
    is_ended: bool = False
    frames: int = 0
    """Unsent."""
    calls: int = 0
    """Without a reply."""
    taken: int = 0
    """Records of the way down."""
    dropped: int = 0
    """Of them."""
    folder: Path = Path()

    def __str__(self) -> str:
        return (
            f"{'ended' if self.is_ended else 'not ended'} with {self.frames} frames unsent, "
            f"{self.calls} calls open and {self.taken} records of the way down taken"
        )


class Standing:
    """The partitions of one or several data directories. One thread; nobody writes meanwhile."""

    def __init__(self, folders: Sequence[Path], partitions: int) -> None:
        """Look at nothing yet.

        Args:
            folders: Data directories; those that are not there have nothing.
            partitions: How many the pipeline has.
        """
        self._folders = folders
        self._partitions = partitions

    def is_drained(self, sent: Sequence[int]) -> bool:
        """Return whether each partition has passed its end, and nothing is on its way.

        Args:
            sent: Records of the way down, by partition.
        """
        return all(
            each.is_ended and not each.frames + each.calls and each.taken == count
            for each, count in zip(self._last(), sent, strict=True)
        )

    @property
    def dropped(self) -> int:
        """Records of the way down that were dropped: messages and replies that came twice."""
        return sum(each.dropped for each in self._last())

    @property
    def owners(self) -> list[Path]:
        """By partition, the data directory where it was opened last."""
        return [each.folder for each in self._last()]

    def __str__(self) -> str:
        """Say it for a person."""
        return ", ".join(f"partition {number} {each}" for number, each in enumerate(self._last()))

    def _last(self) -> Iterator[_Standing]:
        for number in range(self._partitions):
            # where it was opened last; others have an earlier state
            yield max(_look(folder, number) for folder in self._folders)


def _look(folder: Path, number: int) -> _Standing:
    path = folder / "partitions" / f"{number:02d}"
    try:
        rows = PartitionRows(PartitionStore.open(path, read_only=True))
    except StoreMissingError:
        return _Standing()
    try:
        head = rows.head()
        return _Standing(
            rows.epoch,
            head.is_ended,
            len(rows.outbox()),
            sum(1 for _ in rows.calls()),
            head.downlink_position,
            head.counters.dropped_messages,
            folder,
        )
    finally:
        rows.close()
