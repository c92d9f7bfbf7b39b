"""Opening a partition where a run has it: its store, what its last owner left, its session."""

import logging
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.parts.part import PartitionSetup
from walle_stream.actors.parts.snapshots import SnapshotKeeper, put_aside
from walle_stream.actors.plan.partition_plan import PartitionPlan
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.cloud.host_tables import HostTables
from walle_stream.errors import EpochTakenError, SourceMovedError, StoreCorruptedError
from walle_stream.ports import DeviceTunnel, Downlink, ObjectStore
from walle_stream.spec.models import StateSpec
from walle_stream.store.datadir import DataDir
from walle_stream.store.growing import of_count
from walle_stream.store.in_hand import InHand
from walle_stream.store.locks import LOCKS_TIMEOUT_S
from walle_stream.store.objects import open_objects
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import ANY_EPOCH, PartitionSnapshots
from walle_stream.tunnel.session import UplinkSession
from walle_stream.vm.pool import VmPool

_log = logging.getLogger(__name__)

_GENERATION_SHIFT: Final = 32
"""An epoch is the generation of the placement, then a count of openings: who was placed
later has the higher one, on whatever machine."""
_OPENINGS: Final = 1 << _GENERATION_SHIFT


class HostPlace(msgspec.Struct, frozen=True):
    """Which host of a run a process is."""

    index: int
    hosts: int
    """Processes that share the data directory."""

    def numbers(self, partition_count: int) -> range:
        """Return the partitions that it owns."""
        return range(self.index, partition_count, self.hosts)


class PartitionOpener(msgspec.Struct, frozen=True):
    """Opens the partitions of one host; each call in the thread of its partition's host."""

    data_dir: DataDir
    in_hand: InHand
    state: StateSpec
    plan: PartitionPlan
    pool: VmPool
    tunnel: DeviceTunnel
    downlink: Downlink
    tables: HostTables | None
    """The same, where partitions have their cloud side with them."""
    uploads: Executor
    objects: ObjectStore | None = None
    """Where snapshots go."""

    def open(self, number: int, generation: int = 0) -> PartitionHost:
        """Open a partition at its last commit; run in its host's thread.

        A placement by the source has a generation ≥ 1; see ``Placement.assign``.

        A damaged database is put aside where there is a snapshot to go on from.

        Raises:
            SourceMovedError: Its snapshots have that generation, or a later one.
            StoreCorruptedError: Its database is damaged, and there is no snapshot.
        """
        try:
            return self._open(number, generation)
        except StoreCorruptedError as error:
            snapshots, path = self.snapshots_of(number), self.data_dir.partition_path(number)
            if snapshots is None or snapshots.newest is None or not path.is_dir():
                raise
            aside = put_aside(path, "damaged")
            _log.warning("a snapshot is taken, %s has what was there: %s", aside, error)
            # where the first attempt claimed it, whoever places partitions does so once more
            return self._open(number, generation)

    def _open(self, number: int, generation: int) -> PartitionHost:
        path = self.data_dir.partition_path(number)
        sync_ms, keeper = self.state.sync_ms, self._make_keeper(number)
        least = generation << _GENERATION_SHIFT
        # the group took it from a process that may not know yet, and would be gone by itself
        patience_s = LOCKS_TIMEOUT_S if generation else 0.0
        claimed = 0
        if keeper is not None:
            try:
                # in a generation somebody is placed once
                epochs = range(least, least + 1) if generation else ANY_EPOCH
                claimed = keeper.take_over(path, _own_epoch(path, patience_s), epochs)
            except EpochTakenError as error:
                last = error.epoch >> _GENERATION_SHIFT
                raise SourceMovedError(
                    f"partition {number} was opened in generation {last}, and this host has it in "
                    f"generation {generation}",
                    last,
                ) from error
        if generation:
            self.in_hand.adopt(number)

        def open_rows() -> PartitionRows:
            nonlocal claimed
            if keeper is not None and not claimed:
                # once more; whoever has it by now in a later generation keeps it, and what this
                # owner sends is refused until its reader is told
                epochs = range(least, least + _OPENINGS) if generation else ANY_EPOCH
                with suppress(EpochTakenError):
                    claimed = keeper.take_over(path, _own_epoch(path, patience_s), epochs)
            store = PartitionStore.open(path, sync_ms=sync_ms, lock_timeout_s=patience_s)
            rows = PartitionRows(store)
            with ExitStack() as undo:
                undo.callback(rows.close)
                if keeper is not None:
                    # whoever was here before left it, if nothing else
                    rows.incarnation(keeper.snapshots.incarnation(self.data_dir.meta.incarnation))
                if self.tables is not None:
                    own = rows.incarnation(self.data_dir.meta.incarnation)
                    is_snapshot = None if keeper is None else keeper.snapshots.is_fetched
                    self.tables.open(number, store, own, is_snapshot=is_snapshot)
                undo.pop_all()
            return rows

        def open_session(rows: PartitionRows) -> UplinkSession:
            nonlocal claimed
            incarnation = rows.incarnation(self.data_dir.meta.incarnation)
            epoch, claimed = rows.next_epoch(max(claimed, least)), 0
            return UplinkSession(self.tunnel, number, epoch, incarnation, rows.outbox())

        ends = open_rows, open_session, self.downlink
        return PartitionHost(PartitionSetup(number, self.plan, self.pool, *ends, keeper))

    def snapshots_of(self, number: int) -> PartitionSnapshots | None:
        """Return the snapshots of a partition, None where there are none; asks nobody yet."""
        spec, objects = self.state.snapshots, self.objects
        if spec is None or objects is None:
            return None
        count = self.data_dir.meta.partition_count
        folder = of_count(Path(self.plan.pipeline), count).as_posix()
        path = self.data_dir.partition_path(number)
        near = path.with_name(f"{path.name}.warm")
        return PartitionSnapshots(objects, folder, number, spec.keep, near)

    def _make_keeper(self, number: int) -> SnapshotKeeper | None:
        spec, snapshots = self.state.snapshots, self.snapshots_of(number)
        if spec is None or snapshots is None:
            return None
        return SnapshotKeeper(snapshots, self.uploads, spec.every_ms)


def open_snapshots(spec: StateSpec) -> ObjectStore | None:
    """Open the place of a pipeline's snapshots, where it has some; asks nobody yet.

    Raises:
        SpecFileError: An extra is not installed.
    """
    place = spec.snapshots
    return None if place is None else open_objects(place.place, dict(place.options.items()))


def _own_epoch(path: Path, patience_s: float) -> int:
    if not (path / "CURRENT").exists():
        return 0
    rows = PartitionRows(PartitionStore.open(path, lock_timeout_s=patience_s))
    try:
        return rows.epoch
    finally:
        rows.close()
