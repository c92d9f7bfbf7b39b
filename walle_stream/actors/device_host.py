"""The device host: the actor that owns partitions and all their devices.

It runs its partitions' turns in its own thread. The partitions take events one after the other, and
commit together, so that they share the calls of VMs. The VMs run beside the host on their own
interpreter locks. Each partition has its own write batch, and fails alone. Devices are virtual
actors inside: the first event activates a device, and the host passivates the least recent ones.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Event as Flag
from typing import Any, Final

import msgspec

from walle_stream.actors.actor import Actor
from walle_stream.actors.batching import BatchSizer, shared_by
from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.parts.calls import Calls
from walle_stream.actors.parts.containment import Containment
from walle_stream.actors.parts.figures import Figures
from walle_stream.actors.parts.installations import Installations
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.actors.supervisor import RestartPolicy, Supervisor
from walle_stream.actors.turns.calling import run_alone, run_together
from walle_stream.actors.turns.installing import GetTasks, Installed, Installs, Refusals
from walle_stream.actors.turns.turn import Delivery
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SourceError, WalleError
from walle_stream.ports import SourceReader
from walle_stream.types import UplinkFrame

_log = logging.getLogger(__name__)

SETTLE_POLL_S: Final = 0.002
"""Interval between checks for replies, while no other work is left."""


DELIVERY_EVENTS: Final = 256
"""Maximum events handed over at once.

They should still be in the processor's caches when they are taken. A commit has many such
deliveries.
"""

LINGER_S: Final = 0.003
"""Wait for more events before a commit, while none arrive and the host's core is free."""

_IDLE_S: Final = 0.05
_AGE_SHARE: Final = 0.5  # of the latency target: maximum age of a batch at its commit


class Pull:
    """Message: continue to read a source whose partitions are all this host's.

    One thread makes and takes the events, so that they stay in its core's caches. That is worth
    more than reading in parallel, which the interpreter's lock hardly allows. The host sends itself
    the message again until the source is done, so that other messages come between.
    """

    def __init__(self, reader: SourceReader, again: Callable[["Pull"], None]) -> None:
        """Take a reader without closing it; ``again`` sends this message to the host."""
        self.reader = reader
        self.again = again
        self.stop = Flag()
        """Set it to stop reading: the host then drains the reader."""
        self.done = Flag()
        """Set by the host after the last commit of events that were read."""
        self.events = 0
        self.is_ended = False


class GetOffsets(msgspec.Struct):
    """Question: the committed offset of every partition that has one."""


class GetStatus(msgspec.Struct):
    """Question: the partitions' figures, for reports and metrics."""


class Settle(msgspec.Struct):
    """Question: take all waiting messages, and wait for the replies to open calls.

    The answer is the number of missing replies.
    """

    timeout_s: float
    is_stopped: Callable[[], bool] = bool
    """Returns whether to stop waiting; by default never. Called in the host's thread."""


class Close(msgspec.Struct):
    """Question: commit, send, flush and close the partitions; no more events are read."""

    flush_timeout_s: float = 5.0
    is_last: bool = True
    """Whether to close the partitions; else another ``Close`` follows, and they stay open."""


def delivery_events(partitions: int) -> int:
    """Return the maximum events of a read, for all partitions together.

    It grows with the partitions, so that each gets enough events for a turn of its own.
    """
    return DELIVERY_EVENTS * shared_by(partitions)


class _Waiting:
    __slots__ = ("deliveries", "events", "passed_ms", "since_ms", "worked_ms")

    def __init__(self) -> None:
        self.deliveries: dict[int, list[Delivery]] = {}  # by partition
        self.events: dict[int, int] = {}
        self.since_ms = 0.0  # start of the first delivery, by the host's own clock
        self.worked_ms = self.passed_ms = 0.0

    def add(self, delivery: Delivery) -> list[Delivery]:
        batch = delivery.batch
        number = batch.partition
        self.events[number] = self.events.get(number, 0) + len(batch.events)
        deliveries = self.deliveries.setdefault(number, [])
        deliveries.append(delivery)
        return deliveries

    def pop(self, number: int) -> list[Delivery]:
        self.events.pop(number, 0)
        return self.deliveries.pop(number, [])


class DeviceHost(Actor):
    """Host of the devices of some partitions; see the module's docstring.

    For a source that places partitions the host is the ``ports.Placement``.
    """

    def __init__(
        self,
        name: str,
        open_partitions: Callable[[], list[PartitionHost]],
        policy: RestartPolicy,
        sizer: BatchSizer,
        open_placed: Callable[[int, int], PartitionHost] | None = None,
        *,
        incarnation: str = "",
        may_begin_anew: bool = False,
    ) -> None:
        """Describe the host without opening anything.

        ``open_partitions`` runs in the actor's thread. If the source places partitions,
        ``open_placed`` opens one partition in a generation. The other arguments are those of
        ``Placement``.
        """
        self.name = name
        self._open = open_partitions
        self._open_placed = open_placed
        self.incarnation = incarnation
        self.may_begin_anew = may_begin_anew
        self._joined: SourceReader | None = None
        self._left: dict[int, PartitionStatus] = {}  # partitions that moved away
        self._policy = policy
        self._sizer = sizer
        self._own = sizer.own
        self._idle_since_ms = self._looked_ms = 0.0
        self._age_ms = sizer.target_ms * _AGE_SHARE
        self._partitions: dict[int, PartitionHost] = {}
        self._supervisors: dict[int, Supervisor] = {}
        self._waiting = _Waiting()  # deliveries that wait for their commit
        self.in_hand_events = 0
        """Number of events taken and not committed; any thread may read it."""

    @property
    def idle_interval_s(self) -> float:  # type: ignore[override]
        """Short while data waits for a commit or the disk, or a reply is expected."""
        if self._waiting.deliveries:
            return LINGER_S * self._sizer.stretch
        return LINGER_S if any(map(_is_waiting, self._partitions.values())) else _IDLE_S

    def on_start(self) -> None:
        """Open the partitions."""
        for partition in self._open():
            self._add(partition)

    def on_message(self, message: Any) -> Any:
        """Take a batch, or answer a question after the commit of the events taken.

        Raises:
            TypeError: The message is unknown; a bug of the sender.
        """
        if isinstance(message, Delivery):
            has_waited = message.handed_ms > self._own.looked_ms
            self._take([message], self._age_ms, has_waited=has_waited)
            return None
        if isinstance(message, Pull):
            self._pull(message)
            return None
        if isinstance(message, GetTasks):  # waiting events cannot change the tasks
            return {
                device_id: self._partitions[number].parts[Installations].changes_of(device_id)
                for number, device_ids in message.devices.items()
                if number in self._partitions
                for device_id in device_ids
            }
        if isinstance(message, Refusals):
            for number in self._partitions.keys() & message.devices.keys():
                self._partitions[number].parts.report(message.devices[number])
            return None
        if isinstance(message, Installs):
            return self._install(message)
        self._commit_all()
        return self._answer(message)

    def _answer(self, message: Any) -> Any:
        if isinstance(message, GetOffsets):
            return {
                number: offset
                for number, partition in self._partitions.items()
                if (offset := partition.offset) is not None
            }
        if isinstance(message, GetStatus):
            return [partition.status() for partition in self._partitions.values()]
        if isinstance(message, Settle):
            return self._settle(message)
        if isinstance(message, Close):
            deadline_ms = monotonic_ms() + message.flush_timeout_s * 1000.0
            return self._close(deadline_ms) if message.is_last else self._finish(deadline_ms)
        raise TypeError(f"device host {self.name} got {type(message).__name__}")

    # Methods of ``Placement``, which the source's reader calls in this actor's thread

    def assign(self, partitions: Sequence[int], generation: int) -> Mapping[int, bytes]:
        """Open partitions; see ``Placement.assign``.

        Raises:
            TypeError: The host was made for a source that places no partitions; a bug.
            WalleError: A partition cannot be opened.
        """
        if self._open_placed is None:
            raise TypeError(f"device host {self.name} takes no partitions")
        offsets = {}
        for number in partitions:
            partition = self._open_placed(number, generation)
            self._add(partition)
            self._left.pop(number, None)
            if partition.offset is not None:
                offsets[number] = partition.offset
        return offsets

    def revoke(self, partitions: Sequence[int], deadline_ms: float) -> None:
        """Commit and close partitions; see ``Placement.revoke``.

        Events that cannot be committed by the deadline are dropped, as if they had not been read.

        Raises:
            WalleError: A partition cannot be committed; it is closed at its last commit.
        """
        for number in partitions:
            events = self._waiting.events.get(number)
            if events is None:
                continue
            if monotonic_ms() + self._sizer.expected_ms(events) <= deadline_ms:
                self._commit({number: self._put_down(number)})
            else:
                _log.warning(
                    "partition %d moves without its last %d events, which its next owner reads "
                    "again: their commit would take too long. Set a larger "
                    "spec.source.pollInterval to allow more time",
                    number,
                    events,
                )
                self.lose([number])
        for number in partitions:
            partition = self._remove(number)
            if partition is not None:
                partition.close(deadline_ms)
                self._left[number] = partition.status()

    def lose(self, partitions: Sequence[int]) -> None:
        """Close partitions without a commit; see ``Placement.lose``."""
        for number in partitions:
            partition = self._remove(number)
            if partition is not None:
                partition.abandon()
                self._left[number] = partition.status()

    def settle(self) -> bool:
        """Take messages from the cloud; see ``Placement.settle``."""
        self._commit_all()
        self.on_idle()
        is_behind = any(each.parts[Calls].is_behind for each in self._partitions.values())
        return not self._open_calls and not is_behind

    @property
    def _open_calls(self) -> int:
        return sum(each.parts[Figures].open_calls for each in self._partitions.values())

    def peek(self) -> list[PartitionStatus]:
        """Return the partitions' figures at their last commits; any thread, never waits.

        A question would wait behind all batches in the mailbox.
        """
        statuses = [partition.status() for partition in list(self._partitions.values())]
        for status in statuses:
            status.latencies = status.latencies.copy()
        return statuses

    def on_idle(self) -> None:
        """Commit the events taken; without any, take acknowledgements and downlink messages."""
        if self._waiting.deliveries:
            self._commit_all()
            return
        now_ms = monotonic_ms()
        is_all = now_ms - self._looked_ms >= _IDLE_S * 1000.0
        self._looked_ms = now_ms if is_all else self._looked_ms
        for number, partition in self._partitions.items():
            if is_all or _is_waiting(partition):
                self._supervisors[number].run(partition.idle)

    def _add(self, partition: PartitionHost) -> None:
        number = partition.number
        self._partitions[number] = partition
        self._supervisors[number] = Supervisor(
            f"partition {number}", partition.restart, self._policy
        )

    def _remove(self, number: int) -> PartitionHost | None:
        self._put_down(number)
        self._supervisors.pop(number, None)
        return self._partitions.pop(number, None)

    def _put_down(self, number: int) -> list[Delivery]:
        self.in_hand_events -= self._waiting.events.get(number, 0)
        return self._waiting.pop(number)

    def _finish(self, deadline_ms: float) -> None:
        for partition in self._partitions.values():
            # before the first wait: partitions with a flush interval share one flush
            partition.idle(is_last=True)
        for partition in self._partitions.values():
            partition.finish(deadline_ms)

    def _close(self, deadline_ms: float) -> list[PartitionStatus]:
        self._finish(deadline_ms)
        if self._joined is not None:
            self._joined.close()  # leaving the group revokes the partitions
        for partition in self._partitions.values():
            partition.close(deadline_ms)
        own = {number: partition.status() for number, partition in self._partitions.items()}
        self._partitions = {}
        return [status for _, status in sorted({**self._left, **own}.items())]

    def _pull(self, pull: Pull) -> None:
        reader = pull.reader
        if self._open_placed is not None:
            self._joined = reader
        if pull.stop.is_set():
            batches, is_last = reader.drain(), True
        else:
            reader.batch_events = min(delivery_events(len(self._partitions)), self._sizer.events)
            reader.is_urgent = bool(self._waiting.deliveries) or self.idle_interval_s < _IDLE_S
            try:
                batches, is_last = reader.read(), reader.is_done
            except SourceError:
                self._commit_all()  # events of a pipe cannot be read again
                raise
        count = sum(len(batch.events) for batch in batches)
        # a host that keeps up with its source has time for smaller commits, which deliver features
        # sooner; a host that falls behind is faster with larger commits
        keeps_up = 2 * count < reader.batch_events
        age_ms = min(self._age_ms, LINGER_S * 1000.0) if keeps_up else self._age_ms
        pull.events += count
        for batch in batches:
            pull.is_ended = pull.is_ended or batch.is_end
        self._take([Delivery.of(batch) for batch in batches], age_ms, has_waited=keeps_up)
        if is_last:
            self._commit_all()
            pull.done.set()
            return
        if batches:
            self._idle_since_ms = 0.0
        else:
            self._pause()
        pull.again(pull)

    def _pause(self) -> None:
        # a live source without new events
        now_ms = monotonic_ms()
        self._idle_since_ms = self._idle_since_ms or now_ms
        if now_ms - self._idle_since_ms >= self.idle_interval_s * 1000.0:
            self._idle_since_ms = now_ms
            self.on_idle()

    def _take(self, taken: Sequence[Delivery], age_ms: float, *, has_waited: bool) -> None:
        own, sizer, waiting = self._own, self._sizer, self._waiting
        began = own.look(has_waited=has_waited)
        if not waiting.deliveries:
            waiting.since_ms = own.ms
        is_end = False
        for delivery in taken:
            deliveries = waiting.add(delivery)
            self.in_hand_events += len(delivery.batch.events)
            number = delivery.batch.partition
            self._supervisors[number].run(partial(self._partitions[number].take, deliveries))
            is_end = is_end or delivery.batch.is_end
        self._add_time(waiting, began)
        # few events are worth no commit while more are available
        is_old = own.ms - waiting.since_ms > age_ms
        events = sum(waiting.events.values())
        is_worth_it = has_waited or events >= sizer.floor
        if events >= sizer.events or is_end or (is_old and is_worth_it):
            self._commit_all()

    def _add_time(self, waiting: _Waiting, began: tuple[float, float]) -> None:
        worked_ms, wall_ms = self._own.look(has_waited=False)
        waiting.worked_ms += worked_ms - began[0]
        waiting.passed_ms += wall_ms - began[1]

    def _commit_all(self) -> None:
        waiting, began = self._waiting, self._own.look(has_waited=False)
        self._waiting = _Waiting()
        self._commit(waiting.deliveries)
        self._add_time(waiting, began)
        events = sum(waiting.events.values())
        self.in_hand_events -= events
        self._sizer.add(events, waiting.worked_ms, waiting.passed_ms)

    def _commit(self, waiting: Mapping[int, Sequence[Delivery]]) -> None:
        """Commit partitions together and send together; retry each failed partition alone."""
        partitions = {number: self._partitions[number] for number in waiting}
        if not partitions:
            return
        pool = next(iter(partitions.values())).pool
        turns = {number: partition.committing() for number, partition in partitions.items()}
        outcomes = run_together(pool, turns)
        leaving = list[UplinkFrame]()
        for number, partition in partitions.items():
            failure = outcomes[number]

            def turn(
                to: PartitionHost = partition, what: Sequence[Delivery] = waiting[number]
            ) -> None:
                to.take(what)  # skips committed deliveries
                run_alone(pool, to.committing())
                leaving.extend(to.outbox.due())

            self._supervisors[number].run(
                turn, failure if isinstance(failure, WalleError) else None
            )
        for other, target in self._partitions.items():
            if target.outbox.is_waiting:  # a partition without events has no turn of its own
                self._supervisors[other].run(
                    lambda to=target: leaving.extend(to.outbox.due())  # type: ignore[misc]
                )
        next(iter(partitions.values())).send(leaving)

    def _install(self, message: Installs) -> Installed:
        answer = Installed()
        for number, devices in message.devices.items():
            partition = self._partitions.get(number)
            if partition is None:
                continue  # another host's

            deliveries = self._put_down(number)

            def turn(to: PartitionHost = partition, what: Any = devices) -> None:
                if deliveries:  # noqa: B023 - called at once
                    to.take(deliveries)  # noqa: B023 - the same
                answer.refused.update(to.install(message.wanted, what))

            self._supervisors[number].run(turn)
            answer.devices.update(device_id for device_id, _ in devices)
        for partition in self._partitions.values():
            answer.programs |= partition.parts[Installations].programs()
        return answer

    def _settle(self, asked: Settle) -> int:
        deadline_ms = monotonic_ms() + asked.timeout_s * 1000.0
        self._looked_ms = 0.0  # a message may have come right after the last check
        while not (self.settle() or monotonic_ms() >= deadline_ms or asked.is_stopped()):
            Flag().wait(SETTLE_POLL_S)
        return self._open_calls

    def on_stop(self) -> None:
        """Close the resources that a failure left open; commits nothing."""
        for partition in self._partitions.values():
            # first, because a database on a full disk may take longer to close than callers wait
            partition.parts[Containment].close(None)
        for partition in self._partitions.values():
            partition.abandon()
        self._partitions = {}


def _is_waiting(partition: PartitionHost) -> bool:
    return partition.outbox.is_waiting or partition.parts[Calls].is_expecting
