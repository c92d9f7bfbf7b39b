"""The host of one partition: where the pure machine meets store, VM and tunnel.

A turn of this object takes some batches, one by one, then commits them together::

    take   -> machine.handle
    commit -> what came from elsewhere -> VmPool.run -> every part contributes -> ONE write batch
    send   -> what is durable -> the tunnel

What a commit consists of is a list of parts (``parts.order``); this object owns the turn and
the write batch. Small batches stay in the processor's caches while they are handled, large
commits spread what a call of a VM and a write batch cost. A host commits its partitions
together (``committing``): they share the VMs' calls.

Whatever fails before the write batch leaves the store as it was: ``restart``
opens the partition again from its last commit and the turn is tried again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from walle_stream.actors.calling import Calling, run_alone
from walle_stream.actors.doubt import Doubt
from walle_stream.actors.installing import Refusal, Refused, Wanted
from walle_stream.actors.opening import open_partition
from walle_stream.actors.partition_plan import PartitionPlan, PartitionStatus
from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.actors.parts.figures import Figures
from walle_stream.actors.parts.installations import Installations
from walle_stream.actors.parts.order import CommitParts, Given
from walle_stream.actors.parts.outbox import OpenSession, Outbox
from walle_stream.actors.parts.part import Opening
from walle_stream.actors.reports import RunReports
from walle_stream.actors.runs import TaskRuns
from walle_stream.actors.snapshot_keeper import SnapshotKeeper
from walle_stream.actors.turn import Delivery, Turn
from walle_stream.clock import wall_ms
from walle_stream.errors import ActorDeadError
from walle_stream.faults import crash_point
from walle_stream.ports import Downlink
from walle_stream.stream.task_sets import InstalledTask
from walle_stream.types import UplinkFrame
from walle_stream.vm.pool import VmPool

_DOUBTED: Final = 5  # batches: a host's turn may have more than one's worth of events


class PartitionHost:
    """Runs the turns of one partition. One thread, the device host's."""

    def __init__(
        self,
        number: int,
        plan: PartitionPlan,
        pool: VmPool,
        open_rows: Callable[[], PartitionRows],
        open_session: OpenSession,
        downlink: Downlink,
        keeper: SnapshotKeeper | None = None,
    ) -> None:
        """Open the partition at its last commit; blocks on the store.

        Args:
            number: Which partition.
            plan: What all partitions share.
            pool: Where task scripts run.
            open_rows: Opens the partition's database; also after a failure.
            open_session: Opens the way up for an opened database.
            downlink: Where messages for the partition's devices come from.
            keeper: Makes snapshots for other machines; None for none.
        """
        self.number = number
        self.pool = pool
        """Where its tasks run."""
        self._plan = plan
        self._open_rows = open_rows
        how = (plan.report_ms, wall_ms(), plan.compression, plan.proof_of)
        self._reports = RunReports(plan.reported_as, *how) if plan.report_ms else None
        self._doubt = Doubt(plan.in_hand, number, _DOUBTED * plan.batch_events)
        self._parts = CommitParts(
            Given(number, plan, open_session, downlink, keeper, self._doubt, self._reports)
        )
        self.outbox, self.figures = self._parts[Outbox], self._parts[Figures]
        self.installations = self._parts[Installations]
        self._opening: Opening | None = None
        self._last_place = ""  # the last record that was read and committed
        self.restart()

    def restart(self) -> None:
        """Drop what is in memory and open the partition at its last commit."""
        self.abandon()
        opening = self._opening = open_partition(self.number, self._plan, self._open_rows)
        self._turn: Turn | None = None
        self._head, self.offset, self._machine = (
            opening.head,
            opening.rows.offset(),
            opening.machine,
        )
        self._runs = TaskRuns(
            opening.states,
            opening.sets.on_error,
            reports=self._reports,
            warned=self._plan.warned,
        )
        for part in self._parts:
            part.restart(opening)

    # A turn

    def deliver(self, *deliveries: Delivery) -> None:
        """Handle batches to their commit; blocks on VM, store and tunnel.

        Args:
            deliveries: The next batches of this partition.

        Raises:
            WalleError: Nothing of them was committed.
        """
        self.take(deliveries)
        self.commit()

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Advance the devices; blocks on the store alone, where devices are woken.

        Args:
            deliveries: All batches since the last commit: those that were taken
                already are passed over, after a restart all are taken.

        Raises:
            WalleError: Restart, take all again.
        """
        if self._turn is None and deliveries[-1].batch.offset == self.offset:
            # tried again after a commit that failed at the disk's flush, but stands in the log
            return
        turn = self._turn = self._turn or self._begin()
        for delivery in deliveries[turn.taken :]:
            self._opened().take(delivery, turn)

    def commit(self) -> None:
        """Run the tasks that were woken, commit everything taken, and send it; blocks.

        Raises:
            WalleError: Restart, take all again: that passes over what was committed.
        """
        run_alone(self.pool, self.committing())
        self.send()

    def committing(self) -> Calling[None]:
        """Run the tasks that were woken and commit everything taken, beside other partitions.

        Raises:
            WalleError: Nothing was committed: restart, take all again.
        """
        turn = self._turn
        if turn is not None:
            for part in self._parts:
                part.idle(turn)
            yield from self._complete(turn)

    def send(self, others: Sequence[UplinkFrame] = ()) -> None:
        """Send what is durable of its commits; blocks for disk and tunnel.

        Args:
            others: Frames of other partitions of the host, sent with them.

        Raises:
            WalleError: The disk failed, or the tunnel was closed.
        """
        self.outbox.send([*others, *self.outbox.take()])

    def _begin(self) -> Turn:
        head = self._head.copied()
        self._machine.number = head.next_batch
        return Turn(head, self.offset, self._machine.watermark_ms, self._last_place)

    def _complete(self, turn: Turn) -> Calling[None]:
        opening, machine = self._opened(), self._machine
        runs = turn.runs
        if turn.replies:
            opening.wake(machine.absent((), replies=turn.replies))
            runs = runs + machine.answer(turn.replies)
        if runs:
            turn.done = yield from self._runs.run(runs, self._doubt, turn.places)
            turn.dead_letters += turn.done.dead_letters
        self._commit(turn)

    def _commit(self, turn: Turn) -> None:
        rows = self._opened().rows
        for part in self._parts:
            part.contribute(turn, rows)
        if turn.deadline_ms is None or rows.has_changes or turn.head != self._head:
            rows.commit(turn.head, turn.offset)
        self._head, self.offset, self._turn = turn.head, turn.offset, None
        self._last_place = turn.places.last
        for part in self._parts:
            part.committed(turn)

    # Between turns

    def install(self, wanted: Sequence[Wanted], devices: Iterable[tuple[str, int]]) -> Refused:
        """Give devices other tasks, behind what was taken, in ONE commit with it; blocks.

        Args:
            wanted: What devices get.
            devices: (device id, index of it); such as have it already stay as they are.

        Returns:
            The devices that stay as they were, and why.

        Raises:
            WalleError: Nothing was committed: restart, take all again, install again.
        """
        turn = self._turn = self._turn or self._begin()
        self.installations.ask(turn, wanted, devices)
        if turn.installs:
            crash_point("install.before")
            self.commit()
            crash_point("install.after")
            self.outbox.send(self.outbox.take(is_all=True))  # who asked is told
        elif turn.taken:
            self.commit()
        self._turn = None
        return turn.refused

    def report(self, refusals: Iterable[Refusal]) -> None:
        """Count versions that devices refused, for the next report.

        Args:
            refusals: Each once.
        """
        if self._reports is not None:
            for each in refusals:
                self._reports.add_refusal((each.task, each.version), each.device_id, each.error)

    def idle(self) -> None:
        """Let out what is durable, and with nothing else at hand take what came meanwhile."""
        self.send()
        if self._turn is None:
            self._commit_alone(self._begin())

    def _commit_alone(self, turn: Turn) -> None:
        # what came from elsewhere, where some part says that it is worth it
        if any([part.idle(turn) for part in self._parts]):  # noqa: C419 - each is asked
            run_alone(self.pool, self._complete(turn))
            self.send()

    @property
    def open_calls(self) -> int:
        """Calls of the cloud whose replies are on their way."""
        counters = self._head.counters
        return counters.calls - counters.replies

    def settle(self) -> None:
        """Let out all that it made, a last report as well; blocks for disk and tunnel."""
        if self._turn is None:
            turn = self._begin()
            turn.is_last = True
            self._commit_alone(turn)
        self.outbox.send(self.outbox.take(is_all=True))

    def close(self, deadline_ms: float) -> None:
        """Wait for acknowledgements, forget those frames, close the database.

        Args:
            deadline_ms: Monotonic clock at which waiting ends; frames without
                acknowledgement stay in the outbox and are sent again.
        """
        self.settle()
        turn = self._begin()
        turn.deadline_ms = deadline_ms
        self._commit(turn)
        self._let_go(deadline_ms)

    def abandon(self) -> None:
        """Close the database and forget what was not committed."""
        self._let_go(None)

    def _let_go(self, deadline_ms: float | None) -> None:
        for part in self._parts:
            part.close(deadline_ms)
        if deadline_ms is not None:
            crash_point("close.before")
        if self._opening is not None:
            self._opening.rows.close()
            self._opening = None

    def status(self) -> PartitionStatus:
        """Return the partition's figures; also after ``close``."""
        head, figures = self._head, self.figures
        return PartitionStatus(
            self.number,
            head.counters,
            figures.latencies,
            self._machine.active_count,
            self.outbox.in_flight_bytes,
            head.watermark_ms,
            figures.run_events,
            head.ledger,
            head.tasks,
            head.counters.losses - figures.told_losses,
        )

    def programs(self) -> dict[str, InstalledTask]:
        """All that its devices have, and those of the definition, by program."""
        return self.installations.programs(self._head.task_sets)

    def _opened(self) -> Opening:
        if self._opening is None:
            raise ActorDeadError(f"partition {self.number} is closed")
        return self._opening
