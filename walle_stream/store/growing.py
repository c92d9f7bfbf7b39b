"""Locations of partitions' databases before and after their number has grown.

``old`` returns a database that no process has open, ``new`` the path of a database to make.
``publish`` makes all new databases valid at once. A crash before it changes nothing, and the next
attempt starts from the beginning. ``forget`` removes the old databases.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from walle_stream.errors import StoreError
from walle_stream.ports import ObjectStore
from walle_stream.store.datadir import DataDir
from walle_stream.store.files import make_folder, place_file
from walle_stream.store.snapshots import PartitionSnapshots, SnapshotPoint


class GrowingDatabases(Protocol):
    """Databases by partition. One thread; every method blocks, and raises ``StoreError``."""

    def old(self, number: int) -> Path | None:
        """Return the path of an existing database, or None."""

    def new(self, number: int) -> Path:
        """Return the path at which to make the database of a partition."""

    @property
    def is_published(self) -> bool:
        """Whether there are databases for the new number."""

    def publish(self) -> None:
        """Make the new databases valid, in place of any existing ones."""

    def forget(self) -> None:
        """Remove the old databases."""


class GrowingDataDir:
    """Databases of an opened data directory."""

    def __init__(self, data_dir: DataDir, after: int) -> None:
        """Keep the directory without reading it yet."""
        self._data_dir, self._meta = data_dir, data_dir.grown(after)

    def old(self, number: int) -> Path | None:
        """Return a database; see ``GrowingDatabases.old``."""
        return self._data_dir.partition_path(number)

    def new(self, number: int) -> Path:
        """Return the path of a new database; see ``GrowingDatabases.new``."""
        return self._data_dir.path / self._meta.partitions / f"{number:02d}"

    @property
    def is_published(self) -> bool:
        """Whether the directory has the new number; see ``GrowingDatabases``."""
        return self._data_dir.meta == self._meta

    def publish(self) -> None:
        """Write the new number; see ``GrowingDatabases.publish``."""
        self._data_dir.grow(self._meta)

    def forget(self) -> None:
        """Do nothing: ``publish`` removed the old databases."""


class GrowingFolder:
    """Databases in a folder named by the number of partitions: ``of-16``."""

    def __init__(self, folder: Path, before: int, after: int) -> None:
        """Keep the folders without reading them yet."""
        self._before, self._after = of_count(folder, before), of_count(folder, after)
        self._new = self._after.with_name(f"{self._after.name}.new")

    def old(self, number: int) -> Path | None:
        """Return a database; see ``GrowingDatabases.old``."""
        path = self._before / f"{number:02d}"
        return path if (path / "CURRENT").exists() else None

    def new(self, number: int) -> Path:
        """Return the path of a new database; see ``GrowingDatabases.new``."""
        return self._new / f"{number:02d}"

    @property
    def is_published(self) -> bool:
        """Whether the new folder exists; see ``GrowingDatabases``."""
        return self._after.exists()

    def publish(self) -> None:
        """Rename the new folder; see ``GrowingDatabases.publish``.

        Raises:
            StoreError: It cannot be renamed.
        """
        try:
            shutil.rmtree(self._after, ignore_errors=True)
            make_folder(self._new)  # if no partition has a database yet
            place_file(self._new, self._after)
        except OSError as error:
            raise StoreError(f"{self._after} cannot be made: {error}") from error

    def forget(self) -> None:
        """Remove the old databases; see ``GrowingDatabases.forget``."""
        shutil.rmtree(self._before, ignore_errors=True)


class GrowingSnapshots:
    """Databases as snapshots of a pipeline, copied through a private folder."""

    def __init__(
        self,
        objects: ObjectStore,
        pipeline: str,
        counts: tuple[int, int],
        work: Path,
        point_of: Callable[[Path], tuple[SnapshotPoint, str]],
    ) -> None:
        """Keep the parameters without any request.

        ``counts`` are the numbers of partitions before and after. ``work`` has room for all
        databases twice. ``point_of`` returns the progress and the incarnation of a closed database;
        the latter may be empty.
        """
        self._objects, self._work, self._point_of = objects, work, point_of
        folders = [of_count(Path(pipeline), count).as_posix() for count in counts]
        self._before, self._after = folders
        self._mark = f"{self._after}/grown"
        self._made: dict[int, Path] = {}

    def old(self, number: int) -> Path | None:
        """Fetch a database; see ``GrowingDatabases.old``."""
        path = self._work / "old" / f"{number:02d}"
        snapshots = PartitionSnapshots(self._objects, self._before, number)
        return path if snapshots.fetch(path) else None

    def new(self, number: int) -> Path:
        """Return the path of a new database; see ``GrowingDatabases.new``."""
        return self._made.setdefault(number, self._work / "new" / f"{number:02d}")

    @property
    def is_published(self) -> bool:
        """Whether all snapshots were put; see ``GrowingDatabases``."""
        return self._mark in self._objects.listed(self._after)

    def publish(self) -> None:
        """Put the snapshots, then their mark; see ``GrowingDatabases.publish``.

        No process reads them earlier, as the topics still have the old number.
        """
        self._objects.delete(list(self._objects.listed(self._after)))
        for number, path in self._made.items():
            point, incarnation = self._point_of(path)
            snapshots = PartitionSnapshots(self._objects, self._after, number)
            snapshots.own(range(point.epoch, point.epoch + 1))
            snapshots.put(path, point)
            if incarnation:
                snapshots.incarnation(incarnation)
        self._objects.create(self._mark, b"")

    def forget(self) -> None:
        """Remove the old snapshots; see ``GrowingDatabases.forget``."""
        self._objects.delete(list(self._objects.listed(self._before)))


@contextmanager
def growing_snapshots(
    objects: ObjectStore,
    pipeline: str,
    counts: tuple[int, int],
    point_of: Callable[[Path], tuple[SnapshotPoint, str]],
) -> Iterator[GrowingSnapshots]:
    """Yield a pipeline's snapshots, with a temporary folder for the work.

    Raises:
        StoreError: There are no snapshots.
    """
    if not objects.listed(pipeline):
        raise StoreError(f"{objects.place} has no snapshots of {pipeline!r} to grow")
    with TemporaryDirectory(prefix="walle-growing-") as work:
        yield GrowingSnapshots(objects, pipeline, counts, Path(work), point_of)


def of_count(folder: Path, count: int) -> Path:
    """Return the folder of the databases of ``count`` partitions, separate for each count."""
    return folder / f"of-{count}"


def tables_in(folder: Path) -> list[Path]:
    """Return the databases in the folder of a ``walle cloud`` worker; none in other folders.

    They are those of the highest number of partitions, made by the last growth.
    """
    counts = [int(each.name[3:]) for each in folder.glob("of-*") if each.name[3:].isdecimal()]
    found = [each.parent for each in of_count(folder, max(counts, default=0)).glob("*/CURRENT")]
    return sorted(
        (path for path in found if path.name.isdecimal()), key=lambda path: int(path.name)
    )
