"""Opening of a partition: its store, the snapshot of its last owner, its uplink session."""

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
"""Bits of an epoch that count openings, below the generation of the placement.

A later placement thus has a higher epoch on any machine.
"""
_OPENINGS: Final = 1 << _GENERATION_SHIFT


class HostPlace(msgspec.Struct, frozen=True):
    """Place of a process among the hosts of a run."""

    index: int
    hosts: int
    """Number of processes that share the data directory."""

    def numbers(self, partition_count: int) -> range:
        """Return the partitions of this host."""
        return range(self.index, partition_count, self.hosts)


class PartitionOpener(msgspec.Struct, frozen=True):
    """Opener of one host's partitions; call it in the thread of the partition's host."""

    data_dir: DataDir
    in_hand: InHand
    state: StateSpec
    plan: PartitionPlan
    pool: VmPool
    tunnel: DeviceTunnel
    downlink: Downlink
    tables: HostTables | None
    """The tunnel, where partitions store their cloud side."""
    uploads: Executor
    objects: ObjectStore | None = None
    """Object store of the snapshots."""

    def open(self, number: int, generation: int = 0) -> PartitionHost:
        """Open a partition at its last commit; call in its host's thread.

        A placement by the source has a generation ≥ 1; see ``Placement.assign``. A damaged database
        is put aside if a snapshot can replace it.

        Raises:
            SourceMovedError: The snapshots have that generation, or a later one.
            StoreCorruptedError: The database is damaged, and there is no snapshot.
        """
        try:
            return self._open(number, generation)
        except StoreCorruptedError as error:
            snapshots, path = self.snapshots_of(number), self.data_dir.partition_path(number)
            if snapshots is None or snapshots.newest is None or not path.is_dir():
                raise
            aside = put_aside(path, "damaged")
            _log.warning("a snapshot replaces the damaged database, kept as %s: %s", aside, error)
            # if the first attempt claimed the partition, the placing source must place it again
            return self._open(number, generation)

    def _open(self, number: int, generation: int) -> PartitionHost:
        path = self.data_dir.partition_path(number)
        sync_ms, keeper = self.state.sync_ms, self._make_keeper(number)
        least = generation << _GENERATION_SHIFT
        # the previous owner may not know yet that it lost the partition; its lock goes with its
        # process
        patience_s = LOCKS_TIMEOUT_S if generation else 0.0
        claimed = 0
        if keeper is not None:
            try:
                # each generation places a partition once
                epochs = range(least, least + 1) if generation else ANY_EPOCH
                claimed = keeper.take_over(path, _own_epoch(path, patience_s), epochs)
            except EpochTakenError as error:
                last = error.epoch >> _GENERATION_SHIFT
                raise SourceMovedError(
                    f"partition {number} was opened in generation {last}, but this host owns it in "
                    f"generation {generation}",
                    last,
                ) from error
        if generation:
            self.in_hand.adopt(number)

        def open_rows() -> PartitionRows:
            nonlocal claimed
            if keeper is not None and not claimed:
                # a reopening claims again; an owner of a later generation keeps the partition, and
                # frames of this one are refused until its reader is told
                epochs = range(least, least + _OPENINGS) if generation else ANY_EPOCH
                with suppress(EpochTakenError):
                    claimed = keeper.take_over(path, _own_epoch(path, patience_s), epochs)
            store = PartitionStore.open(path, sync_ms=sync_ms, lock_timeout_s=patience_s)
            rows = PartitionRows(store)
            with ExitStack() as undo:
                undo.callback(rows.close)
                if keeper is not None:
                    # the previous owner left at least its incarnation
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
        """Return the snapshots of a partition, None without snapshots; makes no request yet."""
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
    """Open the place of a pipeline's snapshots, if it has one; makes no request yet.

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
