"""The state of a pipeline's hosts when its source gets more partitions.

The source decides where each device is from now on; each device moves there with all its state.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from walle_stream.actors.opening.splitting import PartitionState
from walle_stream.app.partitions import open_snapshots
from walle_stream.spec.loader import LoadedPipeline
from walle_stream.store.datadir import DataDir
from walle_stream.store.growing import GrowingDatabases, GrowingDataDir, growing_snapshots
from walle_stream.store.snapshots import SnapshotPoint


class GrowingState:
    """Partitions that no process has open. One thread; every method blocks."""

    def __init__(self, databases: GrowingDatabases, before: int) -> None:
        """Read the location of each partition.

        Raises:
            StoreError: A partition cannot be read, or the last run did not end cleanly.
        """
        self.databases = databases
        found = {number: databases.old(number) for number in range(before)}
        self._states = {
            number: PartitionState(path) for number, path in found.items() if path is not None
        }

    @property
    def offsets(self) -> dict[int, bytes]:
        """Source offsets by partition; a partition that was never read has none."""
        return {n: state.offset for n, state in self._states.items() if state.offset is not None}

    @property
    def down_positions(self) -> dict[int, int]:
        """Downlink positions by partition."""
        return {number: state.head.downlink_position for number, state in self._states.items()}

    def split(
        self, targets: Mapping[int, range], home: Callable[[str], int], begin: bytes
    ) -> Iterator[int]:
        """Make the new databases, and yield each finished partition.

        ``targets`` has the partitions that share the state of each old one; see
        ``PartitionState.split``.
        """
        for number, state in self._states.items():
            paths = {target: self.databases.new(target) for target in targets[number]}
            state.split(paths, home, begin)
            yield number


@contextmanager
def growing_state(
    loaded: LoadedPipeline[Any], data_dir: Path | None, after: int
) -> Iterator[GrowingState | None]:
    """Open the state of a pipeline, from its snapshots or its data directory; blocks.

    Yields None if the state already has the new number of partitions.

    Raises:
        StoreLockedError: The pipeline is running.
        StoreError: See ``GrowingState``.
    """
    spec, name = loaded.pipeline.spec, loaded.pipeline.metadata.name
    before, snapshots = spec.runtime.partitions, open_snapshots(spec.state)
    with ExitStack() as stack:
        if snapshots is not None:
            growing = growing_snapshots(snapshots, name, (before, after), _point)
            databases: GrowingDatabases = stack.enter_context(growing)
        else:
            path = data_dir or Path("walle-data") / name
            meta = DataDir.open_read_only(path).meta
            if meta.partition_count == after:
                yield None
                return
            opened = DataDir.open(
                path,
                partition_count=before,
                pipeline=name,
                source=meta.source,
                has_cloud=meta.has_cloud,
                placing=meta.placing or 0,
            )
            stack.enter_context(opened)
            databases = GrowingDataDir(opened, after)
        yield GrowingState(databases, before)


def _point(path: Path) -> tuple[SnapshotPoint, str]:
    state = PartitionState(path)
    return SnapshotPoint(state.epoch, state.head.counters.commits), state.incarnation
