"""How far the partitions of a life's hosts are, read from their databases."""

from collections.abc import Iterator
from pathlib import Path

from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.errors import StoreMissingError
from walle_stream.store.partition import PartitionStore


class Standing:
    """The partitions of one or several data directories. One thread; nobody writes meanwhile."""

    def __init__(self, folders: list[Path], partitions: int) -> None:
        """Look at nothing yet.

        Args:
            folders: Data directories; those that are not there have nothing.
            partitions: How many the pipeline has.
        """
        self._folders = folders
        self._partitions = partitions

    @property
    def is_drained(self) -> bool:
        """Whether each partition has passed its end and has no frame to send."""
        return all(is_ended and not frames for _, is_ended, frames in self._last())

    def __str__(self) -> str:
        """Say it for a person."""
        return ", ".join(
            f"partition {number} {'ended' if is_ended else 'not ended'} with {frames} frames unsent"
            for number, is_ended, frames in self._last()
        )

    def _last(self) -> Iterator[tuple[int, bool, int]]:
        for number in range(self._partitions):
            # where it was opened last; others have an earlier state
            found = [each for folder in self._folders if (each := _look(folder, number))]
            yield number, *(max(found)[1:] if found else (False, 0))


def _look(folder: Path, number: int) -> tuple[int, bool, int] | None:
    path = folder / "partitions" / f"{number:02d}"
    try:
        rows = PartitionRows(PartitionStore.open(path, read_only=True))
    except StoreMissingError:
        return None
    try:
        return rows.epoch, rows.head().is_ended, len(rows.outbox())
    finally:
        rows.close()
