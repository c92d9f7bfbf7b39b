"""The host of one partition, which connects the pure core to store, VMs and tunnel.

A turn takes some batches, one by one, then commits them together::

    take   -> the core
    commit -> replies and messages -> VmPool.run -> every part contributes -> ONE write batch
    send   -> durable frames -> the tunnel

A commit is a list of parts (``parts.order``). The host owns the turn and the write batch. A failure
before the write batch leaves the store unchanged. ``restart`` then opens the partition again at its
last commit, and the turn is retried.
"""

from collections.abc import Iterable, Sequence

from walle_stream.actors.opening.opening import open_partition
from walle_stream.actors.parts.figures import Figures
from walle_stream.actors.parts.installations import Installations
from walle_stream.actors.parts.order import CommitParts
from walle_stream.actors.parts.outbox import Outbox
from walle_stream.actors.parts.part import Opening, PartitionSetup
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.actors.runs import TaskRuns
from walle_stream.actors.turns.calling import Calling, run_alone
from walle_stream.actors.turns.installing import Refused, Wanted
from walle_stream.actors.turns.turn import Delivery, Turn
from walle_stream.errors import ActorDeadError
from walle_stream.faults import crash_point
from walle_stream.types import UplinkFrame


class PartitionHost:
    """Runner of the turns of one partition. One thread, the device host's."""

    def __init__(self, setup: PartitionSetup) -> None:
        """Open the partition at its last commit; blocks on the store."""
        self.number, self.pool = setup.number, setup.pool
        self.parts = CommitParts(setup)
        self.outbox = self.parts[Outbox]
        self._opening: Opening | None = None
        self._last_place = ""  # place of the last committed record
        self.restart()

    def restart(self) -> None:
        """Drop the state in memory and open the partition at its last commit."""
        self.abandon()
        opening = self._opening = open_partition(self.parts.setup)
        self._turn: Turn | None = None
        self._is_finished = False
        self._head, self._machine = opening.head, opening.machine
        self.offset = opening.rows.offset()
        self._runs = TaskRuns(opening, self.parts.containment, self.parts.reports)
        for part in self.parts:
            part.restart(opening)

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """Advance the devices; blocks on the store only, to wake devices.

        ``deliveries`` are all since the last commit. Those already taken are skipped; after a
        restart all are taken.

        Raises:
            WalleError: Restart, then take all deliveries again.
        """
        if self._turn is None and deliveries[-1].batch.offset == self.offset:
            return  # a retry: the commit failed at the disk's flush, but is in the log
        turn = self._turn = self._turn or self._begin()
        rows, machine = self._opened().rows, self._machine
        for delivery in deliveries[turn.taken :]:
            events, is_end = delivery.batch.events, delivery.batch.is_end
            rows.wake(machine, machine.absent(events, is_end=is_end))
            turn.add(delivery, machine.take(events, is_end=is_end))

    def commit(self) -> None:
        """Run the woken tasks, commit everything taken, and send it; blocks.

        Raises:
            WalleError: Restart, then take all deliveries again; committed ones are skipped.
        """
        run_alone(self.pool, self.committing())
        self.send()

    def committing(self) -> Calling[None]:
        """Run the woken tasks and commit everything taken, together with other partitions.

        Raises:
            WalleError: Nothing was committed: restart, then take all deliveries again.
        """
        if self._turn is not None:
            for part in self.parts:
                part.idle(self._turn)
            yield from self._complete(self._turn)

    def send(self, others: Sequence[UplinkFrame] = ()) -> None:
        """Send durable frames, with other frames of the host; blocks for disk and tunnel.

        Raises:
            WalleError: The disk failed, or the tunnel was closed.
        """
        self.outbox.send([*others, *self.outbox.due()])

    def _begin(self) -> Turn:
        head = self._head.copied()
        self._machine.number = head.next_batch
        return Turn(head, self.offset, self._machine.watermark_ms, self._last_place)

    def _complete(self, turn: Turn) -> Calling[None]:
        self._opened().rows.wake(self._machine, [told.device_id for told in turn.told])
        if turn.told_before:
            turn.runs.insert(0, self._machine.answer(turn.told_before))
        turn.runs.append(self._machine.answer(turn.told))
        if any(turn.runs):
            turn.done = yield from self._runs.run(turn.runs, turn.origins)
            turn.dead_letters += turn.done.dead_letters
        self._commit(turn)

    def _commit(self, turn: Turn) -> None:
        rows = self._opened().rows
        for part in self.parts:
            part.contribute(turn, rows)
        turn.is_written = turn.deadline_ms is None or rows.has_changes or turn.head != self._head
        if turn.is_written:
            rows.commit(turn.head, turn.offset)
        self._head, self.offset, self._turn = turn.head, turn.offset, None
        self._last_place = turn.origins.last
        for part in self.parts:
            part.committed(turn)

    # Between turns

    def install(self, wanted: Sequence[Wanted], devices: Iterable[tuple[str, int]]) -> Refused:
        """Change tasks of devices, after the events taken and in ONE commit with them; blocks.

        A device comes as its id and an index into ``wanted``.

        Raises:
            WalleError: Nothing was committed: restart, take all deliveries again, install again.
        """
        turn = self._turn = self._turn or self._begin()
        self.parts[Installations].ask(turn, wanted, devices)
        if turn.installs:
            crash_point("install.before")
            self.commit()
            crash_point("install.after")
            self.outbox.send(self.outbox.due(is_all=True))  # before the caller gets its answer
        elif turn.taken:
            self.commit()
        self._turn = None
        return turn.refused

    def idle(self, *, is_last: bool = False) -> None:
        """Take acknowledgements, replies and messages; send durable frames.

        The last call before a long pause also makes a last report, and waits until all frames are
        sent.
        """
        if self._is_finished:
            return
        if self._turn is None:
            turn = self._begin()
            turn.is_last = is_last
            if any([part.idle(turn) for part in self.parts]):  # noqa: C419 - all parts must run
                run_alone(self.pool, self._complete(turn))
        self.outbox.send(self.outbox.due(is_all=is_last))

    def finish(self, deadline_ms: float) -> None:
        """Wait for acknowledgements, delete those frames, and make a snapshot if configured.

        The wait ends at the deadline of the monotonic clock. Unacknowledged frames stay in the
        outbox and are sent again later. The partition takes nothing afterwards.
        """
        if self._is_finished:
            return
        self.idle(is_last=True)
        turn = self._begin()
        turn.deadline_ms = deadline_ms
        self._commit(turn)
        if self.parts.setup.keeper is not None:
            self.parts.setup.keeper.close(deadline_ms)
        self._is_finished = True

    def close(self, deadline_ms: float) -> None:
        """Finish, then close the database."""
        self.finish(deadline_ms)
        crash_point("close.before")
        self.abandon(deadline_ms)

    def abandon(self, deadline_ms: float | None = None) -> None:
        """Close the database without a commit; parts may wait until a deadline."""
        for part in self.parts:
            part.close(deadline_ms)
        if self._opening is not None:
            self._opening.rows.close()
            self._opening = None

    def status(self) -> PartitionStatus:
        """Return the partition's figures; also after ``close``."""
        return self.parts[Figures].status(self.outbox.in_flight_bytes)

    def _opened(self) -> Opening:
        if self._opening is None:
            raise ActorDeadError(f"partition {self.number} is closed")
        return self._opening
