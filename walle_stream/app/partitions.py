"""Opening a partition where a run has it: its store, what its last owner left, its session."""

from concurrent.futures import Executor
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.parts.part import PartitionSetup
from walle_stream.actors.parts.snapshots import SnapshotKeeper
from walle_stream.actors.plan.partition_plan import PartitionPlan
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.errors import SourceMovedError
from walle_stream.ports import Downlink, Holdings, Uplink
from walle_stream.spec.models import StateSpec
from walle_stream.store.datadir import DataDir
from walle_stream.store.growing import of_count
from walle_stream.store.in_hand import InHand
from walle_stream.store.locks import LOCKS_TIMEOUT_S
from walle_stream.store.partition import PartitionStore
from walle_stream.store.snapshots import FolderSnapshots
from walle_stream.tunnel.session import UplinkSession
from walle_stream.vm.pool import VmPool

_GENERATION_SHIFT: Final = 32
"""An epoch is the generation of the placement, then a count of openings: who was placed
later has the higher one, on whatever machine."""


class HostPlace(msgspec.Struct, frozen=True):
    """Which host of a run a process is, and where its way up and down begin."""

    index: int
    hosts: int
    """Processes that share the data directory."""
    uplink: Uplink
    downlink: Downlink
    holdings: Holdings | None = None
    """What the cloud side has; None where nobody can be asked."""

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
    place: HostPlace
    uploads: Executor

    def open(self, number: int, generation: int = 0) -> PartitionHost:
        """Open a partition at its last commit; run in its host's thread.

        A placement by the source has a generation ≥ 1; see ``Placement.assign``.

        Raises:
            SourceMovedError: Its snapshots have that generation, or a later one.
        """
        path, place = self.data_dir.partition_path(number), self.place
        sync_ms, keeper = self.state.sync_ms, self._make_keeper(number)
        least = generation << _GENERATION_SHIFT
        if keeper is not None and generation:
            # now, not when a restart opens it once more: somebody may have it by then
            _expect_later(keeper.snapshots.last_epoch, number, generation)
        if generation:
            self.in_hand.adopt(number)
        # the group took it from a process that may not know yet, and would be gone by itself
        patience_s = LOCKS_TIMEOUT_S if generation else 0.0
        if keeper is not None:
            _fetch_state(keeper, path, patience_s)

        def open_rows() -> PartitionRows:
            store = PartitionStore.open(path, sync_ms=sync_ms, lock_timeout_s=patience_s)
            rows = PartitionRows(store)
            if keeper is not None:
                # whoever was here before left it, if nothing else
                rows.incarnation(keeper.snapshots.incarnation(self.data_dir.meta.incarnation))
            return rows

        def open_session(rows: PartitionRows, seen_epoch: int) -> UplinkSession:
            incarnation = rows.incarnation(self.data_dir.meta.incarnation)
            last = least - 1
            if not generation:
                # nobody places: whoever is started is the owner, whoever was it last; also a copy
                # that was restored, and has a lower epoch than the cloud side saw
                last = max(seen_epoch, 0 if keeper is None else keeper.snapshots.last_epoch)
            epoch = rows.next_epoch(last + 1)
            if keeper is not None:
                keeper.snapshots.own(epoch)
            sender = number, epoch, incarnation
            return UplinkSession(place.uplink, *sender, rows.outbox(), rows.head().numbering)

        plan = msgspec.structs.replace(self.plan, holdings=place.holdings)
        return PartitionHost(
            PartitionSetup(number, plan, self.pool, open_rows, open_session, place.downlink, keeper)
        )

    def _make_keeper(self, number: int) -> SnapshotKeeper | None:
        spec = self.state.snapshots
        if spec is None:
            return None
        folder = of_count(spec.path / self.plan.pipeline, self.data_dir.meta.partition_count)
        snapshots = FolderSnapshots(folder, number)
        return SnapshotKeeper(snapshots, self.uploads, spec.every_ms)


def _expect_later(epoch: int, number: int, generation: int) -> None:
    last = epoch >> _GENERATION_SHIFT
    if last >= generation:
        raise SourceMovedError(
            f"partition {number} was opened in generation {last}, and this host has it in "
            f"generation {generation}",
            last,
        )


def _fetch_state(keeper: SnapshotKeeper, path: Path, patience_s: float) -> None:
    epoch = 0
    if (path / "CURRENT").exists():
        rows = PartitionRows(PartitionStore.open(path, lock_timeout_s=patience_s))
        epoch = rows.epoch
        rows.close()
    keeper.fetch(path, epoch)
