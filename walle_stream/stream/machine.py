"""The pure core of one partition: events in, commands out.

``PartitionMachine.handle`` takes a batch of one partition and returns the task
runs that it woke; ``complete`` takes their results and returns numbered
features; ``delta`` says what a commit must write. No I/O happens here: states
of devices that are not in memory are handed in by the caller (``absent`` tells
which). What comes out depends on the order of the partition's events alone,
never on how they were cut into batches, nor on which devices are in memory.

A device here is a virtual actor: activated by its first event, passivated when
others are more recent. What a batch did to a device is *dirty* until ``delta``
hands it to the store, which may be many batches later: the caller keeps the
batches in between (``oldest_dirty`` tells since when) and gives them again
after a death (``skipping``).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from walle_stream.errors import StoreCorruptedError
from walle_stream.events import Event
from walle_stream.stream.commands import REPLY_POSITION, Reply, RunTask, StreamCounts
from walle_stream.stream.ordering import NEVER_MS
from walle_stream.stream.pages import OpenPage, page_input
from walle_stream.stream.sequence import DeviceSequence, SequencePolicy
from walle_stream.stream.snapshots import DeviceDelta, DeviceSnapshot
from walle_stream.stream.task_sets import DEFAULT_SET, TaskSet
from walle_stream.stream.trigger import EMPTY_CURSOR, Cursor


class _Device:
    __slots__ = (
        "accept",
        "cursor",
        "device_id",
        "next_call",
        "next_number",
        "pages",
        "sequence",
        "tasks",
    )

    def __init__(self, device_id: str, sequence: DeviceSequence, tasks: TaskSet) -> None:
        self.device_id = device_id
        self.sequence = sequence
        self.tasks = tasks
        self.accept = sequence.accept
        self.pages = sequence.pages
        self.cursor: Cursor = EMPTY_CURSOR
        self.next_number = 1
        self.next_call = 1


class PartitionMachine:
    """All devices of one partition. One thread; see the module's docstring."""

    def __init__(
        self,
        triggers: Mapping[str, Sequence[Sequence[str]]],
        policy: SequencePolicy,
        pages: Mapping[str, Collection[str]] | None = None,
        find_set: Callable[[str], TaskSet] | None = None,
    ) -> None:
        """Make an empty partition.

        Args:
            triggers: For each task its conditions, each a sequence of trigger
                ids (event or page ids).
            policy: How page sequences are built.
            pages: For tasks that only events on certain pages wake, these.
            find_set: Gives the task sets that were installed on devices, by id; without,
                all devices have the definition's tasks.
        """
        self.number = 0
        """Of the batch at hand, set by the caller; ascending."""
        self._find_set = find_set
        default = TaskSet(DEFAULT_SET, triggers, policy, pages)
        self._sets = {DEFAULT_SET: default}
        self.trie = default.trie
        """Of the definition's tasks."""
        self.counts = StreamCounts()
        self.late_events: list[Event] = []
        self.watermark_ms = -1
        self._devices: dict[str, _Device] = {}
        self._touched: dict[str, _Device] = {}  # by the events at hand
        self._dirty: dict[str, int] = {}  # since which batch, ascending
        self._emitted: dict[str, _Device] = {}
        self._resting: set[str] = set()  # those armed that are not in memory
        self._timers: list[tuple[int, str]] = []
        self._armed: dict[str, int] = {}
        self._runs: list[RunTask] = []
        self._device: _Device = _Device("", DeviceSequence(policy), default)

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
            replies: Those that ``answer`` will get.

        Returns:
            Device ids, each once: those with replies or events, then those whose timers
            the batch's watermark makes due.
        """
        devices = self._devices
        needed = {reply.device_id: None for reply in replies if reply.device_id not in devices}
        for event in events:
            if event.device_id not in devices:
                needed[event.device_id] = None
        if self._resting:
            if is_end:
                due: Iterable[str] = sorted(self._resting)
            else:
                times = (event.ingest_time_ms for event in events)
                due = self._due(max(max(times, default=-1), self.watermark_ms))
            needed.update(dict.fromkeys(due))
        return list(needed)

    def activate(
        self,
        device_id: str,
        snapshot: DeviceSnapshot | None,
        rows: Mapping[int, list[Any]],
    ) -> None:
        """Bring a device into memory.

        Args:
            device_id: The device.
            snapshot: What the store holds of it; None for a device never seen.
            rows: Event rows of its open pages by page ordinal, in row order.
        """
        if snapshot is None:
            self.counts.new_devices += 1
            tasks = self._sets[DEFAULT_SET]
            sequence = DeviceSequence(tasks.policy, device_id, tasks.trie.ids)
            device = _Device(device_id, sequence, tasks)
        else:
            tasks = self._tasks(snapshot.task_set)
            sequence = DeviceSequence.restore(
                tasks.policy, snapshot.sequence, rows, device_id, tasks.trie.ids
            )
            device = _Device(device_id, sequence, tasks)
            device.cursor = tasks.trie.import_cursor(snapshot.cursor)
            sequence.position = snapshot.position
            device.next_number = snapshot.next_number
            device.next_call = snapshot.next_call
        self._devices[device_id] = device
        self._resting.discard(device_id)

    def arm(self, device_id: str, deadline_ms: int) -> None:
        """Remember the timer of a device at rest (when a partition is opened)."""
        self._armed[device_id] = deadline_ms
        self._resting.add(device_id)
        heappush(self._timers, (deadline_ms, device_id))

    def excess(self, keep: int) -> list[str]:
        """Return the devices not touched for longest, which should be passivated.

        Args:
            keep: Most devices that stay in memory, ≥ 0.
        """
        count = len(self._devices) - keep
        return list(islice(self._devices, count)) if count > 0 else []

    def passivate(self, device_ids: Iterable[str]) -> None:
        """Forget devices; only after a commit with their ``delta``.

        Args:
            device_ids: In memory and not dirty.
        """
        for device_id in device_ids:
            del self._devices[device_id]
            if device_id in self._armed:
                self._resting.add(device_id)

    # A batch

    def handle(
        self,
        events: Sequence[Event],
        *,
        is_end: bool = False,
        skipping: Collection[str] = (),
    ) -> list[RunTask]:
        """Take a batch and return the task runs that it woke.

        Args:
            events: Events of this partition in its order; every device is in
                memory (see ``absent``).
            is_end: The source's natural end follows: every timer fires.
            skipping: Devices that have had this batch already: it is only
                time to the others.

        Returns:
            Commands; for one device in the order of their positions.
        """
        self._runs = []
        self.counts.events += len(events)
        touched, touch = self._touched, self._touch
        touched.clear()
        watermark = self.watermark_ms
        for event in events:
            if event.ingest_time_ms > watermark:
                watermark = event.ingest_time_ms
            device = touched.get(event.device_id)
            if device is None:
                if event.device_id in skipping:
                    continue
                device = touch(event.device_id)
            self._device = device
            device.accept(event, watermark, self)
        self.watermark_ms = watermark
        for device in touched.values():
            self._rearm(device)
        if is_end:
            self._finish(skipping)
        else:
            self._fire_timers(watermark)
        return self._runs

    def install(self, device_id: str, task_set: str) -> None:
        """Give a device other tasks, from its next event on.

        Its open pages stay, and so do its ongoing matches: one whose path stands in the
        new conditions, too, goes on where it is.

        Args:
            device_id: In memory (see ``activate``).
            task_set: Id of a set.
        """
        device, tasks = self._touch(device_id), self._tasks(task_set)
        device.tasks = tasks
        device.sequence.change(tasks.policy.fields, tasks.trie.ids)

    def task_set(self, device_id: str) -> str:
        """Return the id of the tasks that a device in memory has."""
        return self._devices[device_id].tasks.set_id

    def answer(self, replies: Iterable[Reply]) -> list[RunTask]:
        """Take replies of the cloud, behind the events so far.

        Args:
            replies: Their devices are in memory (see ``absent``).

        Returns:
            Commands. Their clock is the partition's watermark: how far time has come.
        """
        runs, clock_ms = [], max(self.watermark_ms, 0)
        for device_id, task, number, given in replies:
            program = self._touch(device_id).tasks.programs.get(task)
            if program is not None:  # else it was uninstalled since it called
                position = REPLY_POSITION + number
                runs.append(RunTask(device_id, task, position, clock_ms, given, program))
        return runs

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
                device = self._emitted[run.device_id] = devices[run.device_id]
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
            device = self._emitted[run.device_id] = self._devices[run.device_id]
            for index, call in enumerate(made, 1):
                # the name is what the guest's ``call_cloud`` returned
                numbered.append((run, device.next_call, f"{run.position}.{index}", call))
                device.next_call += 1
        return numbered

    @property
    def oldest_dirty(self) -> int | None:
        """Number of the first batch of which something is not in the store; None for none."""
        return next(iter(self._dirty.values()), None)

    def numbers(self) -> list[tuple[str, int, int]]:
        """Return the devices whose numbers the batch moved.

        Every commit writes them: they depend on what the scripts did, which giving the
        batch again does not tell.

        Returns:
            (device id, next sequence number, next number of a call).
        """
        return [
            (device.device_id, device.next_number, device.next_call)
            for device in self._emitted.values()
        ]

    def is_active(self, device_id: str) -> bool:
        """Return whether a device is in memory."""
        return device_id in self._devices

    def set_numbers(self, device_id: str, next_number: int, next_call: int) -> None:
        """Move a device's numbers to where they were behind a batch given again.

        Args:
            device_id: In memory.
            next_number: As ``numbers`` said.
            next_call: The same.
        """
        device = self._touch(device_id)
        device.next_number, device.next_call = next_number, next_call

    def delta(self, until: int | None = None, also: Iterable[str] = ()) -> list[DeviceDelta]:
        """Return what the commit writes of dirty devices, which are clean then.

        Args:
            until: Those dirty since this batch or an earlier one; None for all.
            also: These, too, where they are dirty.
        """
        dirty, names = self._dirty, []
        for device_id, since in dirty.items():
            if until is not None and since > until:
                break
            names.append(device_id)
        for device_id in names:
            del dirty[device_id]
        names += [device_id for device_id in also if dirty.pop(device_id, None) is not None]
        return [self._delta(self._devices[device_id]) for device_id in names]

    def mark_committed(self) -> None:
        """Forget what was pending, because the commit succeeded."""
        self._emitted.clear()
        self.counts = StreamCounts()
        self.late_events = []

    # The sink of DeviceSequence

    def event(self, event: Event, page: OpenPage | None) -> bool:
        """Take a released event: advance the trie, collect the runs it wakes."""
        device = self._device
        tasks = device.tasks
        woken, is_ongoing = None, False
        if not device.cursor and event.page_id not in tasks.ids:
            woken = tasks.alone.get(event.id)  # the usual case, without a call
        if woken is None:
            device.cursor, woken = tasks.advance(device.cursor, event.id, event.page_id)
            is_ongoing = bool(device.cursor)
        if woken:
            if page is None or page.rows is None:
                given = page_input(event, page, tasks.policy.fields)
            else:  # an open page that woke tasks before
                given = (page.rows, len(page.events))
            position, time_ms, runs = device.pages.position, event.event_time_ms, self._runs
            for task, program in woken:
                runs.append(RunTask(device.device_id, task, position, time_ms, given, program))
        return is_ongoing

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

    def _tasks(self, set_id: str) -> TaskSet:
        tasks = self._sets.get(set_id)
        if tasks is None:
            if self._find_set is None:
                raise StoreCorruptedError(
                    f"a device has the task set {set_id!r}, which is not stored: restore the data "
                    "directory from a copy"
                )
            tasks = self._sets[set_id] = self._find_set(set_id)
        return tasks

    def _delta(self, device: _Device) -> DeviceDelta:
        sequence = device.sequence
        new_rows, closed_pages = sequence.take_changes()
        snapshot = DeviceSnapshot(
            sequence.position,
            device.next_number,
            device.tasks.trie.export_cursor(device.cursor) if device.cursor else [],
            sequence.settle(),
            sequence.export(),
            device.next_call,
            self.number,
            device.tasks.set_id,
        )
        return DeviceDelta(device.device_id, snapshot, new_rows, closed_pages)

    def _touch(self, device_id: str) -> _Device:
        device = self._devices.pop(device_id)
        self._devices[device_id] = device  # the most recently used comes last
        self._touched[device_id] = self._device = device
        if device_id not in self._dirty:
            self._dirty[device_id] = self.number
        return device

    def _rearm(self, device: _Device) -> None:
        # armed is the device's deadline or earlier: moving it on with every event would
        # cost more than to look in vain now and then
        deadline, device_id = device.sequence.due_ms, device.device_id
        if deadline < self._armed.get(device_id, NEVER_MS):
            self._armed[device_id] = deadline
            heappush(self._timers, (deadline, device_id))

    def _fire_timers(self, watermark: int) -> None:
        timers, armed = self._timers, self._armed
        while timers and timers[0][0] <= watermark:
            deadline, device_id = heappop(timers)
            if armed.get(device_id) != deadline:
                continue
            del armed[device_id]
            device = self._devices[device_id]
            if device.sequence.due_ms <= watermark:
                self._touch(device_id)
                device.sequence.advance(watermark, self)
            self._rearm(device)

    def _finish(self, skipping: Collection[str]) -> None:
        kept = {name: self._armed[name] for name in skipping if name in self._armed}
        for device_id in sorted(self._armed):
            if device_id not in kept:
                device = self._touch(device_id)
                device.sequence.finish(self)
        self._armed = kept
        self._timers = sorted((deadline, name) for name, deadline in kept.items())

    def _due(self, watermark: int) -> Iterator[str]:
        # down the heap as far as timers are due
        timers, places = self._timers, [0]
        while places:
            place = places.pop()
            if place < len(timers) and timers[place][0] <= watermark:
                if timers[place][1] in self._resting:
                    yield timers[place][1]
                places += (2 * place + 1, 2 * place + 2)


def _run_order(result: tuple[RunTask, Sequence[Any]]) -> tuple[str, int, str]:
    run = result[0]
    return run.device_id, run.position, run.task
