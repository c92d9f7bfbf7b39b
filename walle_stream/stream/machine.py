"""The pure core of one partition: events in, commands out.

``PartitionMachine.handle`` takes a batch of one partition and returns the task
runs that it woke; ``complete`` takes their results and returns numbered
features; ``delta`` says what a commit must write. No I/O happens here: states
of devices that are not in memory are handed in by the caller (``absent`` tells
which). What comes out depends on the order of the partition's events alone,
never on how they were cut into batches, nor on which devices are in memory.

A device here is a virtual actor: its mailbox is its slice of a batch, a turn
is at most ``TURN_EVENTS`` of them, so that a hot device cannot starve others.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import msgspec

from walle_stream.events import Event
from walle_stream.stream.pages import OpenPage, PageInput, ReplyInput, page_input
from walle_stream.stream.sequence import DeviceSequence, SequencePolicy
from walle_stream.stream.trigger import EMPTY_CURSOR, Cursor, TriggerTrie

TURN_EVENTS: Final = 64
"""Most events of one device in one turn."""

REPLY_POSITION: Final = 1 << 40
"""Replies have their calls' numbers behind this as positions: when one arrives is
left to chance, and must not be seen in the positions of events."""


class RunTask(msgspec.Struct, gc=False):
    """A command: run this task for this device over this page."""

    device_id: str
    task: str
    position: int
    """Trigger position: which released event of the device woke the task,
    from 1; orders the device's features and seeds the guest's random."""
    clock_ms: int
    """The guest's clock: event time of the waking event."""
    page: PageInput | ReplyInput


class Reply(NamedTuple):
    """An answer of the cloud: an event of its device that wakes one task."""

    device_id: str
    task: str
    number: int
    """Of the call."""
    given: ReplyInput


class StreamCounts(msgspec.Struct):
    """What a batch did to the event sequences, for the counters."""

    events: int = 0
    new_devices: int = 0
    page_sequences: int = 0
    timed_out_pages: int = 0
    reentered_pages: int = 0
    overflowed_pages: int = 0
    missing_enters: int = 0
    duplicate_events: int = 0
    late_events: int = 0


class DeviceSnapshot(msgspec.Struct, array_like=True):
    """A device at rest, without the event rows of its open pages."""

    position: int
    next_number: int
    cursor: list[list[str]]
    deadline_ms: int | None
    sequence: Any
    """``DeviceSequence.export()``: plain tuples."""
    next_call: int = 1


class DeviceDelta(msgspec.Struct, gc=False):
    """What a commit writes for one device that a batch touched."""

    device_id: str
    snapshot: DeviceSnapshot
    new_rows: list[tuple[int, int, Any]]
    """Event rows of open pages: (page ordinal, row index, row); append-only."""
    closed_pages: list[tuple[int, int]]
    """Pages that have rows in the store and are closed: (ordinal, row count)."""


class _Device:
    __slots__ = ("cursor", "device_id", "next_call", "next_number", "position", "sequence")

    def __init__(self, device_id: str, sequence: DeviceSequence) -> None:
        self.device_id = device_id
        self.sequence = sequence
        self.cursor: Cursor = EMPTY_CURSOR
        self.position = 0
        self.next_number = 1
        self.next_call = 1


class PartitionMachine:
    """All devices of one partition. One thread; see the module's docstring."""

    def __init__(
        self, triggers: Mapping[str, Sequence[Sequence[str]]], policy: SequencePolicy
    ) -> None:
        """Make an empty partition.

        Args:
            triggers: For each task its conditions, each a sequence of trigger
                ids (event or page ids).
            policy: How page sequences are built.
        """
        self.trie = TriggerTrie()
        for task, conditions in triggers.items():
            for condition in conditions:
                self.trie.insert(task, condition)
        self.counts = StreamCounts()
        self.late_events: list[Event] = []
        self.watermark_ms = -1
        self._policy = policy
        self._devices: dict[str, _Device] = {}
        self._touched: dict[str, _Device] = {}
        self._timers: list[tuple[int, str]] = []
        self._armed: dict[str, int] = {}
        self._runs: list[RunTask] = []
        self._device: _Device = _Device("", DeviceSequence(policy))

    @property
    def active_count(self) -> int:
        """How many devices are in memory."""
        return len(self._devices)

    # Activation and passivation

    def absent(
        self, events: Iterable[Event], *, is_end: bool = False, replies: Iterable[Reply] = ()
    ) -> list[str]:
        """Return the devices that a batch needs and that are not in memory.

        Args:
            events: The batch that ``handle`` will get next.
            is_end: Whether the source's natural end follows it.
            replies: Those that ``handle`` will get.

        Returns:
            Device ids, each once: those with replies or events, then those whose timers
            the batch's watermark makes due.
        """
        devices = self._devices
        needed = {reply.device_id: None for reply in replies if reply.device_id not in devices}
        watermark = self.watermark_ms
        for event in events:
            if event.device_id not in devices:
                needed[event.device_id] = None
            # not max(): a call per event on the hottest loop
            if event.ingest_time_ms > watermark:  # noqa: PLR1730
                watermark = event.ingest_time_ms
        if is_end:
            due: Iterable[str] = self._armed
        elif self._timers and self._timers[0][0] <= watermark:
            due = [name for deadline, name in self._timers if deadline <= watermark]
        else:
            due = ()
        for name in due:
            if name not in devices and name in self._armed:
                needed[name] = None
        return list(needed)

    def activate(
        self, device_id: str, snapshot: DeviceSnapshot | None, rows: Mapping[int, list[Any]]
    ) -> None:
        """Bring a device into memory.

        Args:
            device_id: The device.
            snapshot: What the store holds of it; None for a device never seen.
            rows: Event rows of its open pages by page ordinal, in row order.
        """
        if snapshot is None:
            self.counts.new_devices += 1
            device = _Device(device_id, DeviceSequence(self._policy, device_id))
        else:
            sequence = DeviceSequence.restore(self._policy, snapshot.sequence, rows, device_id)
            device = _Device(device_id, sequence)
            device.cursor = self.trie.import_cursor(snapshot.cursor)
            device.position = snapshot.position
            device.next_number = snapshot.next_number
            device.next_call = snapshot.next_call
        self._devices[device_id] = device

    def arm(self, device_id: str, deadline_ms: int) -> None:
        """Remember the timer of a device at rest (when a partition is opened)."""
        self._armed[device_id] = deadline_ms
        heappush(self._timers, (deadline_ms, device_id))

    def passivate(self, keep: int) -> list[str]:
        """Forget the devices not touched for longest; only after a commit.

        Args:
            keep: Most devices that stay in memory, ≥ 0.

        Returns:
            The ids forgotten; what else is cached for them can go too.
        """
        excess = len(self._devices) - keep
        if excess <= 0:
            return []
        gone = [name for name, _ in zip(self._devices, range(excess), strict=False)]
        for name in gone:
            del self._devices[name]
        return gone

    # A batch

    def handle(
        self, events: Sequence[Event], *, is_end: bool = False, replies: Iterable[Reply] = ()
    ) -> list[RunTask]:
        """Take a batch and return the task runs that it woke.

        Args:
            events: Events of this partition in its order; every device is in
                memory (see ``absent``).
            is_end: The source's natural end follows: every timer fires.
            replies: Come behind the events. Their clock is the partition's
                watermark: how far time has come.

        Returns:
            Commands; for one device in the order of their positions.
        """
        self._runs = []
        self.counts.events += len(events)
        mailboxes: dict[str, list[tuple[Event, int]]] = {}
        watermark = self.watermark_ms
        for event in events:
            # not max(): a call per event on the hottest loop
            if event.ingest_time_ms > watermark:  # noqa: PLR1730
                watermark = event.ingest_time_ms
            mailbox = mailboxes.get(event.device_id)
            if mailbox is None:
                mailboxes[event.device_id] = [(event, watermark)]
            else:
                mailbox.append((event, watermark))
        self.watermark_ms = watermark
        first = 0
        while mailboxes:
            rest = {}
            for device_id, mailbox in mailboxes.items():
                self._turn(device_id, mailbox[first : first + TURN_EVENTS])
                if len(mailbox) > first + TURN_EVENTS:
                    rest[device_id] = mailbox
            mailboxes, first = rest, first + TURN_EVENTS
        self._fire_timers(watermark, is_end=is_end)
        for device_id, task, number, given in replies:
            self._touch(device_id)
            position = REPLY_POSITION + number
            self._runs.append(RunTask(device_id, task, position, max(watermark, 0), given))
        return self._runs

    def complete(
        self, results: Iterable[tuple[RunTask, Sequence[Any]]]
    ) -> list[tuple[RunTask, int, Any]]:
        """Number what the runs emitted, per device.

        Args:
            results: Every run of the batch with its emits, in any order.

        Returns:
            (run, sequence number, emit), grouped by device, ascending: in the
            order (trigger position, task name, emit index).
        """
        numbered: list[tuple[RunTask, int, Any]] = []
        devices = self._devices
        for run, emits in sorted(results, key=_run_order):
            if emits:
                device = devices[run.device_id]
                for emit in emits:
                    numbered.append((run, device.next_number, emit))
                    device.next_number += 1
        return numbered

    def complete_calls[C](
        self, calls: Iterable[tuple[RunTask, Sequence[C]]]
    ) -> list[tuple[RunTask, int, str, C]]:
        """Number the calls of the cloud that the runs made, per device.

        Args:
            calls: Of runs of the batch, in any order.

        Returns:
            (run, number, name of the call, call), in the order of ``complete``.
        """
        numbered = []
        for run, made in sorted(calls, key=_run_order):
            device = self._devices[run.device_id]
            for index, call in enumerate(made, 1):
                # the name is what the guest's ``call_cloud`` returned
                numbered.append((run, device.next_call, f"{run.position}.{index}", call))
                device.next_call += 1
        return numbered

    def delta(self) -> list[DeviceDelta]:
        """Return what the commit of this batch writes, per touched device."""
        deltas = []
        for device in self._touched.values():
            sequence = device.sequence
            new_rows, closed_pages = sequence.take_changes()
            snapshot = DeviceSnapshot(
                device.position,
                device.next_number,
                self.trie.export_cursor(device.cursor) if device.cursor else [],
                sequence.next_deadline_ms,
                sequence.export(),
                device.next_call,
            )
            deltas.append(DeviceDelta(device.device_id, snapshot, new_rows, closed_pages))
        return deltas

    def mark_committed(self) -> None:
        """Forget what was pending, because the commit succeeded."""
        self._touched = {}
        self.counts = StreamCounts()
        self.late_events = []

    # The sink of DeviceSequence

    def event(self, event: Event, page: OpenPage | None) -> None:
        """Take a released event: advance the trie, collect the runs it wakes."""
        device = self._device
        device.position += 1
        device.cursor, fired = self.trie.advance(device.cursor, event.id, event.page_id)
        if fired:
            given = page_input(event, page, self._policy.fields)
            for task in fired:
                self._runs.append(
                    RunTask(device.device_id, task, device.position, event.event_time_ms, given)
                )

    def closed(self, cause: str) -> None:
        """Count a closed page."""
        counts = self.counts
        if cause == "exit":
            counts.page_sequences += 1
        elif cause == "timeout":
            counts.timed_out_pages += 1
        elif cause == "reenter":
            counts.reentered_pages += 1
        else:
            counts.overflowed_pages += 1

    def duplicate(self, event: Event) -> None:  # noqa: ARG002 - the sink's signature
        """Count an event that was seen before."""
        self.counts.duplicate_events += 1

    def late(self, event: Event) -> None:
        """Keep an event that came too late for its device's order."""
        self.counts.late_events += 1
        self.late_events.append(event)

    def missing_enter(self, event: Event) -> None:  # noqa: ARG002 - the sink's signature
        """Count an exit from a page that was never entered."""
        self.counts.missing_enters += 1

    # Inside

    def _turn(self, device_id: str, slice_: list[tuple[Event, int]]) -> None:
        device = self._touch(device_id)
        accept = device.sequence.accept
        for event, watermark in slice_:
            accept(event, watermark, self)
        self._rearm(device)

    def _touch(self, device_id: str) -> _Device:
        device = self._devices.pop(device_id)
        self._devices[device_id] = device  # the most recently used comes last
        self._touched[device_id] = device
        self._device = device
        return device

    def _rearm(self, device: _Device) -> None:
        deadline = device.sequence.next_deadline_ms
        device_id = device.device_id
        if deadline is None:
            if self._armed:
                self._armed.pop(device_id, None)
        elif self._armed.get(device_id) != deadline:
            self._armed[device_id] = deadline
            heappush(self._timers, (deadline, device_id))

    def _fire_timers(self, watermark: int, *, is_end: bool) -> None:
        if is_end:
            for device_id in sorted(self._armed):
                device = self._touch(device_id)
                device.sequence.finish(self)
                self._rearm(device)
            self._timers.clear()
            return
        timers = self._timers
        while timers and timers[0][0] <= watermark:
            deadline, device_id = heappop(timers)
            if self._armed.get(device_id) == deadline:
                device = self._touch(device_id)
                device.sequence.advance(watermark, self)
                self._rearm(device)


def _run_order(result: tuple[RunTask, Sequence[Any]]) -> tuple[str, int, str]:
    run = result[0]
    return run.device_id, run.position, run.task
