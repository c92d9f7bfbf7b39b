"""The host of one partition: where the pure machine meets store, VM and tunnel.

A turn of this object takes some batches, one by one, then commits them together::

    take   -> machine.handle
    commit -> VmPool.run -> machine.complete -> ONE write batch
    send   -> outgoing.add -> the tunnel

Small batches stay in the processor's caches while they are handled, large commits
spread what a call of a VM and a write batch cost. A host commits its partitions
together (``committing``): they share the VMs' calls.

Whatever fails before the write batch leaves the store as it was: ``restart``
opens the partition again from its last commit and the turn is tried again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from walle_stream.actors.calling import Calling, run_alone
from walle_stream.actors.dead_letters import event_dead_letter
from walle_stream.actors.doubt import Doubt
from walle_stream.actors.exchange import CloudExchange, Inbound
from walle_stream.actors.installing import Refusal, Refused, Wanted
from walle_stream.actors.journal import JournalDefinition, JournalWindow
from walle_stream.actors.latency import Latencies
from walle_stream.actors.ledger import book_measured, book_sent
from walle_stream.actors.outgoing import Outgoing
from walle_stream.actors.partition_plan import PartitionPlan, PartitionStatus
from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.actors.partition_sets import PartitionSets
from walle_stream.actors.places import origin_of
from walle_stream.actors.recovery import recover
from walle_stream.actors.reports import RunReports
from walle_stream.actors.resuming import resumed_head
from walle_stream.actors.runs import Done, TaskRuns
from walle_stream.actors.snapshot_keeper import SnapshotKeeper
from walle_stream.actors.task_states import TaskStates
from walle_stream.actors.turn import Delivery, Turn, count_commit
from walle_stream.clock import monotonic_ms, wall_ms
from walle_stream.errors import ActorDeadError
from walle_stream.faults import crash_point
from walle_stream.ports import Downlink
from walle_stream.stream.commands import Reply, RunTask
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.task_sets import DEFAULT_SET, Changes, InstalledTask
from walle_stream.tunnel.letters import LetterSession
from walle_stream.tunnel.session import UplinkSession
from walle_stream.types import UplinkFrame
from walle_stream.vm.pool import VmPool
from walle_stream.wire.calls import CloudCall, encode_calls
from walle_stream.wire.frame import FeatureRecord, encode_body, split_records
from walle_stream.wire.journal import encode_batch
from walle_stream.wire.rows import PartitionHead, add_tasks

_DOUBTED: Final = 5  # batches: a host's turn may have more than one's worth of events


class PartitionHost:
    """Runs the turns of one partition. One thread, the device host's."""

    def __init__(
        self,
        number: int,
        plan: PartitionPlan,
        pool: VmPool,
        open_rows: Callable[[], PartitionRows],
        open_session: Callable[[PartitionRows, int], UplinkSession],
        downlink: Downlink,
        keeper: SnapshotKeeper | None = None,
    ) -> None:
        """Open the partition at its last commit; blocks on the store.

        Args:
            number: Which partition.
            plan: What all partitions share.
            pool: Where task scripts run.
            open_rows: Opens the partition's database; also after a failure.
            open_session: Opens the way up for an opened database, given the highest
                epoch that the cloud side has seen; sends what the outbox holds.
            downlink: Where messages for the partition's devices come from.
            keeper: Makes snapshots for other machines; None for none.
        """
        self.number = number
        self.latencies = Latencies()
        self.run_events = 0
        self._last_place = ""  # the last record that was read and committed
        self._plan = plan
        self.pool = pool
        """Where its tasks run."""
        self._open_rows = open_rows
        self._open_session = open_session
        self._downlink = downlink
        self._keeper = keeper
        self._rows: PartitionRows | None = None
        self._leaving: list[str] = []
        how = (plan.report_ms, wall_ms(), plan.compression, plan.proof_of)
        self.reports = RunReports(plan.reported_as, *how) if plan.report_ms else None
        self._doubt = Doubt(plan.in_hand, number, _DOUBTED * plan.batch_events)
        self.restart()

    def restart(self) -> None:
        """Drop what is in memory and open the partition at its last commit."""
        self.abandon()
        self._turn: Turn | None = None
        rows = self._rows = self._open_rows()
        recover(rows, JournalDefinition(self._plan.triggers, self._plan.policy))
        self._journal = JournalWindow(self._plan.journal_events)
        incarnation = rows.incarnation(self._plan.incarnation)
        self._head, seen_epoch = resumed_head(rows, self._plan, self.number, incarnation)
        self._told_losses = self._head.told_losses
        self._doubt.begin(self._head)
        self.offset = rows.offset()
        plan = self._plan
        sets = self._sets = PartitionSets(
            rows, plan.policy, plan.tasks, plan.programs, plan.reported_as
        )
        if self.reports is not None:
            self.reports.restart()
            self.reports.relabel(sets.labels)
        machine = self._machine = PartitionMachine(
            plan.triggers, plan.policy, plan.pages, sets.find
        )
        machine.watermark_ms = self._head.watermark_ms
        for device_id, deadline_ms in rows.timers():
            machine.arm(device_id, deadline_ms)
        self._states = TaskStates(rows.task_state)
        self._runs = TaskRuns(
            rows, self._states, sets.on_error, reports=self.reports, warned=plan.warned
        )
        only = plan.only_device
        self._exchange = CloudExchange(self.number, rows, self._downlink, incarnation, only)
        self._session = self._open_session(rows, seen_epoch)
        self._letters: LetterSession | None = None
        if plan.sink is not None:
            kept_as = {"pipeline": plan.pipeline, "incarnation": incarnation}
            self._letters = LetterSession(
                plan.sink,
                self.number,
                lambda after: rows.unsent_letters(after, partition=self.number, **kept_as),
            )
        self.outgoing = Outgoing(
            rows.durability, self._session, self._letters, self._exchange.release, self._last_letter
        )
        self.send()

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
            self._take(turn, delivery)
            turn.taken += 1

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
            inbound = self._exchange.take(turn.head, self._sets.names)
            yield from self._complete(turn, inbound)

    def send(self, others: Sequence[UplinkFrame] = ()) -> None:
        """Send what is durable of its commits; blocks for disk and tunnel.

        Args:
            others: Frames of other partitions of the host, sent with them.

        Raises:
            WalleError: The disk failed, or the tunnel was closed.
        """
        self._session.send([*others, *self.outgoing.step()])

    def _begin(self) -> Turn:
        head = self._head.copied()
        self._machine.number = head.next_batch
        return Turn(head, self.offset, self._machine.watermark_ms, self._last_place)

    def _take(self, turn: Turn, delivery: Delivery) -> None:
        machine, rows, batch = self._machine, self._opened(), delivery.batch
        events = delivery.events()
        turn.parts.append(delivery.part)
        for device_id in machine.absent(events, is_end=batch.is_end):
            machine.activate(device_id, *rows.device(device_id))
        exits, late = machine.counts.page_sequences, len(machine.late_events)
        woken = machine.handle(events, is_end=batch.is_end)
        turn.places.add(len(turn.runs), len(woken), delivery.part, batch.origins)
        turn.runs += woken
        exits = machine.counts.page_sequences - exits
        if exits:
            turn.exits.append((delivery.delivered_ms, exits))
        turn.add(batch, len(events))
        turn.dead_letters += [
            event_dead_letter(event, origin_of(event, events, batch.origins))
            for event in machine.late_events[late:]
        ]

    def _complete(self, turn: Turn, inbound: Inbound, *, is_last: bool = False) -> Calling[Refused]:
        machine, head = self._machine, turn.head
        runs = self._answer(turn.runs, inbound.replies)
        turn.dead_letters += inbound.dead_letters
        done = Done()
        if runs:
            done = yield from self._runs.run(runs, self._doubt, turn.places)
        head.counters.task_runs += len(runs)
        head.counters.task_failures += done.failures
        head.tasks = add_tasks(head.tasks, done.tasks)
        turn.dead_letters += done.dead_letters
        records = [
            FeatureRecord(
                run.device_id,
                run.task,
                self._sets.versions[run.program],
                number,
                feature,
                encoding,
                run.clock_ms,
            )
            for run, number, (feature, encoding) in machine.complete(done.emitted)
        ]
        count_commit(head, machine.counts, records)
        head.watermark_ms = machine.watermark_ms
        bodies = [encode_body(part, self._plan.compression) for part in split_records(records)]
        asked: list[CloudCall] = []
        if done.calls:
            calls = machine.complete_calls(done.calls)
            asked = self._exchange.put_calls(calls, self._sets.versions)
            head.counters.calls += len(asked)
            bodies.extend(encode_calls(asked, self._plan.compression))
        sent = book_sent(records, asked, bodies)
        if self._plan.is_measured:
            sent = sent.plus(book_measured(sent, turn.raw, records, self._plan.compression))
        head.ledger = head.ledger.plus(sent)
        if self.reports is not None:
            # not in the ledger, which is of what tasks sent
            bodies += self.reports.take(wall_ms(), is_last=is_last)
        refused = self._sets.move(turn, machine, self._states) if turn.installs else {}
        self._put_devices(turn)
        frames = self._commit(turn, records, bodies)
        if self.reports is not None:
            self.reports.committed()
        self._doubt.commit(turn.events, head)
        self._last_place = turn.places.last
        self.outgoing.add(frames, self._last_letter, head.downlink_position)
        if self._keeper is not None:
            self._keeper.look(self._opened(), head.counters.commits)
        self.run_events += turn.events
        now_ms = monotonic_ms()
        for delivered_ms, exits in turn.exits:
            self.latencies.add(now_ms - delivered_ms, exits)
        return refused

    def _answer(self, runs: list[RunTask], replies: list[Reply]) -> list[RunTask]:
        if not replies:
            return runs
        machine, rows = self._machine, self._opened()
        for device_id in machine.absent((), replies=replies):
            machine.activate(device_id, *rows.device(device_id))
        return runs + machine.answer(replies)

    def _put_devices(self, turn: Turn) -> None:
        # the batches into the journal; devices that are dirty for long, or must leave memory
        machine, rows, journal = self._machine, self._opened(), self._journal
        numbers = machine.numbers()
        if turn.taken or numbers or turn.installs:
            turn.head.next_batch += 1
            row = encode_batch(
                turn.parts,
                turn.watermark_ms,
                is_end=turn.head.is_ended,
                numbers=numbers,
                installs=turn.installs,
            )
            journal.add(machine.number, turn.events, len(row))
            rows.put_journal(machine.number, row)
        else:
            self._write_as_committed(turn.head)
        self._leaving = machine.excess(self._plan.active_devices)
        for delta in machine.delta(journal.due, self._leaving):
            rows.put_device(delta)
        rows.drop_journal(journal.release(machine.oldest_dirty))

    def _write_as_committed(self, head: PartitionHead) -> None:
        # what is written without a batch includes none that is to come: a recovery would pass
        # over that one for these devices
        self._machine.number = head.next_batch - 1

    def _commit(
        self, turn: Turn, records: list[FeatureRecord], bodies: list[bytes]
    ) -> list[tuple[int, bytes]]:
        rows, machine, head = self._opened(), self._machine, turn.head
        frames = []
        for body in bodies:
            frames.append((head.next_frame, body))
            head.next_frame += 1
            head.counters.uplink_frames += 1
            head.counters.uplink_bytes += self._session.size_bytes(body)
        rows.put_features(records)
        rows.put_outbox(frames, self._settled(head))
        rows.put_dead_letters(head, turn.dead_letters, is_to_send=self._letters is not None)
        if self._letters is not None:
            rows.drop_letter_marks(self._letters.collect())
        rows.commit(head, turn.offset)
        machine.mark_committed()
        machine.passivate(self._leaving)
        self._states.forget(self._leaving)
        self._head, self.offset, self._turn = head, turn.offset, None
        return frames

    def _settled(self, head: PartitionHead) -> list[int]:
        # frames whose rows go: they arrived, or the outbox's policy gave them up
        dropped = self._session.shed(head.watermark_ms)
        head.counters.dropped_frames += len(dropped)
        head.counters.dropped_features += sum(each.features for each in dropped)
        return self._session.collect() + [each.number for each in dropped]

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
        machine, sets, turn = self._machine, self._sets, self._turn or self._begin()
        after: dict[tuple[str, int], str] = {}
        for device_id, which in devices:
            if not machine.is_active(device_id):
                machine.activate(device_id, *self._opened().device(device_id))
            old = machine.task_set(device_id)
            if (old, which) not in after:
                after[old, which] = sets.after(old, wanted[which])
            if after[old, which] != old:
                turn.installs.append((device_id, after[old, which]))
        refused: Refused = {}
        self._turn = turn
        if turn.installs:
            crash_point("install.before")
            inbound = self._exchange.take(turn.head, sets.names)
            refused = run_alone(self.pool, self._complete(turn, inbound))
            self.send()
            crash_point("install.after")
            self._session.send(self.outgoing.settle())  # who asked is told
        elif turn.taken:
            self.commit()
        self._turn = None
        return refused

    def report(self, refusals: Iterable[Refusal]) -> None:
        """Count versions that devices refused, for the next report.

        Args:
            refusals: Each once.
        """
        if self.reports is not None:
            for each in refusals:
                self.reports.add_refusal((each.task, each.version), each.device_id, each.error)

    def changes_of(self, device_id: str) -> Changes:
        """Return what a device has other than the definition's tasks."""
        if self._machine.is_active(device_id):
            return self._sets.changes(self._machine.task_set(device_id))
        snapshot, _ = self._opened().device(device_id)
        return {} if snapshot is None else self._sets.changes(snapshot.task_set)

    @property
    def programs(self) -> dict[str, InstalledTask]:
        """All that its devices have, and those of the definition, by program."""
        return self._sets.programs_of([DEFAULT_SET, *self._head.task_sets])

    def idle(self) -> None:
        """Let out what is durable, and with nothing else at hand take what came down meanwhile."""
        self.send()
        self._session.pump()
        if self._turn is None:
            turn = self._begin()
            inbound = self._exchange.take(turn.head, self._sets.names)
            is_due = self.reports is not None and self.reports.is_due(wall_ms())
            if inbound.count or is_due:
                run_alone(self.pool, self._complete(turn, inbound))
                self.send()

    @property
    def _last_letter(self) -> int:
        return self._head.next_dead_letter - 1

    @property
    def open_calls(self) -> int:
        """Calls of the cloud whose replies are on their way."""
        counters = self._head.counters
        return counters.calls - counters.replies

    def settle(self) -> None:
        """Let out all that it made, a last report as well; blocks for disk and tunnel."""
        if self.reports is not None and self._turn is None and self.reports.is_due(0, is_last=True):
            run_alone(self.pool, self._complete(self._begin(), Inbound([], []), is_last=True))
        self._session.send(self.outgoing.settle())

    def close(self, deadline_ms: float) -> None:
        """Wait for acknowledgements, forget those frames, close the database.

        Args:
            deadline_ms: Monotonic clock at which waiting ends; frames without
                acknowledgement stay in the outbox and are sent again.
        """
        rows = self._opened()
        self.settle()
        self._session.flush(deadline_ms)
        arrived = []
        if self._letters is not None:
            self._letters.flush(self._last_letter, deadline_ms)
            arrived = self._letters.collect()
        head = self._head.copied()
        settled = self._settled(head)
        head.told_losses = head.counters.losses
        self._write_as_committed(head)
        deltas = self._machine.delta()
        if settled or arrived or deltas or head.told_losses > self._told_losses:
            for delta in deltas:
                rows.put_device(delta)
            rows.drop_journal(self._journal.release(None))
            rows.put_outbox((), settled)
            rows.drop_letter_marks(arrived)
            rows.commit(head, self.offset)
            self._head = head
        if self._keeper is not None:
            self._keeper.finish(rows, self._head.counters.commits, deadline_ms)
        crash_point("close.before")
        self.abandon()

    def abandon(self) -> None:
        """Close the database and forget what was not committed."""
        self._doubt.put_down()
        if self._rows is not None:
            self._rows.close()
            self._rows = None

    def status(self) -> PartitionStatus:
        """Return the partition's figures; also after ``close``."""
        return PartitionStatus(
            self.number,
            self._head.counters,
            self.latencies,
            self._machine.active_count,
            self._session.in_flight_bytes,
            self._head.watermark_ms,
            self.run_events,
            self._head.ledger,
            self._head.tasks,
            self._head.counters.losses - self._told_losses,
        )

    def _opened(self) -> PartitionRows:
        if self._rows is None:
            raise ActorDeadError(f"partition {self.number} is closed")
        return self._rows
