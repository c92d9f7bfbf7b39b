"""Progress of the partitions of a life's hosts, read from their databases."""

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
    """Unsent frames."""
    calls: int = 0
    """Calls without a reply."""
    taken: int = 0
    """Records taken from the downlink."""
    dropped: int = 0
    """Dropped records among them."""
    folder: Path = Path()

    def __str__(self) -> str:
        return (
            f"{'ended' if self.is_ended else 'not ended'} with {self.frames} frames unsent, "
            f"{self.calls} calls open and {self.taken} records of the downlink taken"
        )


class Standing:
    """Partitions of data directories, which no process may write meanwhile. For one thread."""

    def __init__(self, folders: Sequence[Path], partitions: int) -> None:
        """Store the arguments without opening a database.

        Args:
            folders: Data directories; a missing one counts as empty.
            partitions: Number of the pipeline's partitions.
        """
        self._folders = folders
        self._partitions = partitions

    def is_drained(self, sent: Sequence[int]) -> bool:
        """Return whether each partition has passed its end, and no record is in flight.

        Args:
            sent: Number of records in the downlink, by partition.
        """
        return all(
            each.is_ended and not each.frames + each.calls and each.taken == count
            for each, count in zip(self._last(), sent, strict=True)
        )

    @property
    def dropped(self) -> int:
        """Number of dropped records of the downlink: repeated messages and replies."""
        return sum(each.dropped for each in self._last())

    @property
    def owners(self) -> list[Path]:
        """Data directory of each partition's last owner."""
        return [each.folder for each in self._last()]

    def __str__(self) -> str:
        """Describe all partitions for a person."""
        return ", ".join(f"partition {number} {each}" for number, each in enumerate(self._last()))

    def _last(self) -> Iterator[_Standing]:
        for number in range(self._partitions):
            # the last owner's database has the highest epoch
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
