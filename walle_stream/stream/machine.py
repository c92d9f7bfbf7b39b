"""The reference core of one partition: events in, runs and rows out.

``Core`` describes each method. No I/O happens here: the caller provides the rows of the
``absent`` devices.

A device is a virtual actor: its first event activates it, and it is passivated when
other devices are more recent.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import Any

import msgspec

from walle_stream.events import Event
from walle_stream.stream.commands import Runs, RunTask, StreamCounts, Told, Woken
from walle_stream.stream.interface import Core, FindSet
from walle_stream.stream.open_pages import OpenPages
from walle_stream.stream.ordering import NEVER_MS
from walle_stream.stream.pages import OpenPage, page_input
from walle_stream.stream.sequence import DeviceSequence
from walle_stream.stream.snapshots import DeviceRows, DeviceSnapshot, decode_page_rows
from walle_stream.stream.task_sets import DEFAULT_SET, TaskSet
from walle_stream.stream.trigger import EMPTY_CURSOR, Cursor
from walle_stream.wire.event_batch import EventBatch, RefusedRow
from walle_stream.wire.rows import encode_row


class _Device:
    __slots__ = (
        "accept",
        "as_of",
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
        self.as_of = -1


class PartitionMachine(Core):
    """All devices of one partition; see ``Core``."""

    def __init__(self, find_set: FindSet) -> None:
        """Make an empty partition; see ``MakeCore``."""
        self.number = 0
        self._find_set = find_set
        self._sets: dict[str, TaskSet] = {}
        default = self._tasks(DEFAULT_SET)
        self.counts = StreamCounts()
        self.watermark_ms = -1
        self._late: list[Event] = []
        self._devices: dict[str, _Device] = {}
        self._touched: dict[str, _Device] = {}  # by the current batch
        self._dirty: dict[str, int] = {}  # number of the first dirty batch, ascending
        self._emitted: dict[str, _Device] = {}
        self._resting: set[str] = set()  # devices with a timer that are not in memory
        self._timers: list[tuple[int, str]] = []
        self._armed: dict[str, int] = {}
        self._runs = _no_runs()
        self._waking = list[OpenPages]()  # pages that append to runs by themselves
        self._device: _Device = _Device("", DeviceSequence(default.policy), default)

    @property
    def active_count(self) -> int:  # noqa: D102 - inherited
        return len(self._devices)

    @property
    def oldest_dirty(self) -> int | None:  # noqa: D102 - inherited
        return next(iter(self._dirty.values()), None)

    # Activation and passivation

    def absent(self, batch: EventBatch, *, is_end: bool = False) -> list[str]:  # noqa: D102 - inherited
        devices, events, needed = self._devices, batch.events(), dict[str, None]()
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

    def activate(  # noqa: D102 - inherited
        self, device_id: str, row: bytes | None, pages: Callable[[], Iterable[tuple[int, bytes]]]
    ) -> None:
        if row is None:
            self.counts.devices += 1
            tasks = self._tasks(DEFAULT_SET)
            sequence = DeviceSequence(tasks.policy, device_id, tasks.trie.ids)
            device = _Device(device_id, sequence, tasks)
        else:
            snapshot = DeviceSnapshot.decoded(row)
            tasks = self._tasks(snapshot.task_set)
            rows = decode_page_rows(pages()) if snapshot.has_pages else {}
            sequence = DeviceSequence.restore(
                tasks.policy, snapshot.sequence, rows, device_id, tasks.trie.ids
            )
            device = _Device(device_id, sequence, tasks)
            device.cursor = tasks.trie.import_cursor(snapshot.cursor)
            device.pages.position = snapshot.position
            device.next_number = snapshot.next_number
            device.next_call = snapshot.next_call
            device.as_of = snapshot.as_of
        self._devices[device_id] = device
        self._resting.discard(device_id)

    def is_active(self, device_id: str) -> bool:  # noqa: D102 - inherited
        return device_id in self._devices

    def arm(self, device_id: str, deadline_ms: int) -> None:  # noqa: D102 - inherited
        self._armed[device_id] = deadline_ms
        self._resting.add(device_id)
        heappush(self._timers, (deadline_ms, device_id))

    def excess(self, keep: int) -> list[str]:  # noqa: D102 - inherited
        count = len(self._devices) - keep
        return list(islice(self._devices, count)) if count > 0 else []

    def passivate(self, device_ids: Iterable[str]) -> None:  # noqa: D102 - inherited
        for device_id in device_ids:
            del self._devices[device_id]
            if device_id in self._armed:
                self._resting.add(device_id)

    # A batch

    def take(self, batch: EventBatch, *, is_end: bool = False) -> Woken:  # noqa: D102 - inherited
        events, self._runs, exits = batch.events(), _no_runs(), self.counts.page_sequences
        self.counts.events += len(events)
        devices, touched, touch = self._devices, self._touched, self._touch
        touched.clear()
        watermark = self.watermark_ms
        for event in events:
            if event.ingest_time_ms > watermark:
                watermark = event.ingest_time_ms
            device = touched.get(event.device_id)
            if device is None:
                if devices[event.device_id].as_of >= self.number:
                    continue  # the device had this batch; for others it only advances time
                device = touch(event.device_id)
            self._device = device
            device.accept(event, watermark, self)
        self.watermark_ms = watermark
        for device in touched.values():
            self._rearm(device)
        if is_end:
            self._finish()
        else:
            self._fire_timers(watermark)
        for pages in self._waking:  # their runs must not outlive the batch
            pages.wake_page, pages.wakes = None, []
        self._waking.clear()
        refused = [*batch.refused, *self._refused(batch, events)] if self._late else batch.refused
        batch.let_go()
        return Woken(self._runs, refused, len(events), self.counts.page_sequences - exits)

    def answer(self, told: Iterable[Told]) -> Runs:  # noqa: D102 - inherited
        self._runs, now_ms = _no_runs(), max(self.watermark_ms, 0)
        for device_id, task, position, given, clock_ms in told:
            device = self._touch(device_id)
            # a device without events must exist after a crash, too
            self._emitted[device_id] = device
            program = device.tasks.programs.get(task)
            if program is not None:  # None if the task was uninstalled after its call
                run = (position, now_ms if clock_ms is None else clock_ms, given)
                self._runs[task, program][device_id].append(run)
        return self._runs

    def complete[T](  # noqa: D102 - inherited
        self, results: Iterable[tuple[RunTask, Sequence[T]]]
    ) -> list[tuple[RunTask, int, T]]:
        numbered: list[tuple[RunTask, int, T]] = []
        devices = self._devices
        for run, emits in sorted(results, key=_run_order):
            if emits:
                device = self._emitted[run.device_id] = devices[run.device_id]
                for emit in emits:
                    numbered.append((run, device.next_number, emit))
                    device.next_number += 1
        return numbered

    def complete_calls[T](  # noqa: D102 - inherited
        self, calls: Iterable[tuple[RunTask, Sequence[T]]]
    ) -> list[tuple[RunTask, int, str, T]]:
        numbered = []
        for run, answer in sorted(calls, key=_run_order):
            device = self._emitted[run.device_id] = self._devices[run.device_id]
            for index, call in enumerate(answer, 1):
                # the same name that the guest's ``call_cloud`` returned
                numbered.append((run, device.next_call, f"{run.position}.{index}", call))
                device.next_call += 1
        return numbered

    # Tasks of a device

    def install(self, device_id: str, task_set: str) -> None:  # noqa: D102 - inherited
        if self._devices[device_id].as_of < self.number:
            device, tasks = self._touch(device_id), self._tasks(task_set)
            device.tasks = tasks
            device.pages.change(tasks.policy.fields, tasks.trie.ids)

    def task_set(self, device_id: str) -> str:  # noqa: D102 - inherited
        return self._devices[device_id].tasks.set_id

    # A commit

    def numbers(self) -> list[tuple[str, int, int]]:  # noqa: D102 - inherited
        return [
            (device.device_id, device.next_number, device.next_call)
            for device in self._emitted.values()
        ]

    def set_numbers(self, device_id: str, next_number: int, next_call: int) -> None:  # noqa: D102 - inherited
        if self._devices[device_id].as_of < self.number:
            device = self._touch(device_id)
            device.next_number, device.next_call = next_number, next_call

    def delta(self, until: int | None = None, also: Iterable[str] = ()) -> list[DeviceRows]:  # noqa: D102 - inherited
        dirty, names = self._dirty, []
        for device_id, since in dirty.items():
            if until is not None and since > until:
                break
            names.append(device_id)
        for device_id in names:
            del dirty[device_id]
        names += [device_id for device_id in also if dirty.pop(device_id, None) is not None]
        return [self._delta(self._devices[device_id]) for device_id in names]

    def mark_committed(self) -> None:  # noqa: D102 - inherited
        self._emitted.clear()
        self.counts = StreamCounts()

    # The sink of DeviceSequence

    def event(self, event: Event, page: OpenPage | None) -> bool:
        """Take a released event: advance the trie and collect the runs that it wakes."""
        device = self._device
        tasks = device.tasks
        woken = alone = None
        if not device.cursor and event.page_id not in tasks.ids:
            woken = alone = tasks.alone.get(event.id)  # the common case, without a call
        if woken is None:
            device.cursor, woken = tasks.advance(device.cursor, event.id, event.page_id)
        if woken:
            pages = device.pages
            device_id, all_runs = device.device_id, self._runs
            if page is None or page.rows is None:
                page_in = page_input(event, page, tasks.policy.fields)
            else:  # an open page that already woke tasks
                page_in = (page.rows, len(page.events))
                if alone is not None:
                    pages.wake_page, pages.wake_id = page, event.id
                    pages.wakes = [all_runs[program][device_id] for program in woken]
                    self._waking.append(pages)
            run = (pages.position, event.event_time_ms, page_in)
            for program in woken:
                all_runs[program][device_id].append(run)
        return alone is None and bool(device.cursor)

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
        """Count a duplicate event."""
        self.counts.duplicate_events += 1

    def late(self, event: Event) -> None:
        """Keep an event that came too late for its device's order."""
        self.counts.late_events += 1
        self._late.append(event)

    def missing_enter(self, event: Event) -> None:  # noqa: ARG002 - the sink's signature
        """Count an exit from a page that was never entered."""
        self.counts.missing_enters += 1

    # Inside

    def _tasks(self, set_id: str) -> TaskSet:
        tasks = self._sets.get(set_id)
        if tasks is None:
            tasks = self._sets[set_id] = TaskSet(set_id, self._find_set(set_id))
        return tasks

    def _refused(self, batch: EventBatch, events: Sequence[Event]) -> Iterator[RefusedRow]:
        late, self._late, order = self._late, [], list(map(id, events))
        for event in late:
            index = batch.kept[order.index(id(event))]
            reason = f"event time {event.event_time_ms} is earlier than a released event"
            record = msgspec.json.encode(event)
            yield RefusedRow(index, "late", reason, event.device_id, event.ingest_time_ms, record)

    def _delta(self, device: _Device) -> DeviceRows:
        sequence = device.sequence
        new_rows, closed_pages = device.pages.take_changes()
        deadline_ms = sequence.settle()
        snapshot = DeviceSnapshot(
            device.pages.position,
            device.next_number,
            device.tasks.trie.export_cursor(device.cursor) if device.cursor else [],
            deadline_ms,
            sequence.export(),
            device.next_call,
            self.number,
            device.tasks.set_id,
        )
        page_rows = [(ordinal, index, encode_row(row)) for ordinal, index, row in new_rows]
        row = encode_row(snapshot)
        return DeviceRows(device.device_id, row, deadline_ms, page_rows, closed_pages)

    def _touch(self, device_id: str) -> _Device:
        device = self._devices.pop(device_id)
        self._devices[device_id] = device  # the most recently used comes last
        self._touched[device_id] = self._device = device
        if device_id not in self._dirty:
            self._dirty[device_id] = self.number
        return device

    def _rearm(self, device: _Device) -> None:
        # the armed time is the device's deadline or earlier: to update it at every event would
        # cost more than an occasional check in vain
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

    def _finish(self) -> None:
        ahead = [name for name in self._armed if self._devices[name].as_of >= self.number]
        kept = {name: self._armed.pop(name) for name in ahead}
        for device_id in sorted(self._armed):
            device = self._touch(device_id)
            device.sequence.finish(self)
        self._armed = kept
        self._timers = sorted((deadline, name) for name, deadline in kept.items())

    def _due(self, watermark: int) -> Iterator[str]:
        # walks down the heap as far as timers are due
        timers, open_indices = self._timers, [0]
        while open_indices:
            index = open_indices.pop()
            if index < len(timers) and timers[index][0] <= watermark:
                if timers[index][1] in self._resting:
                    yield timers[index][1]
                open_indices += (2 * index + 1, 2 * index + 2)


def _no_runs() -> Runs:
    return defaultdict(partial(defaultdict, list))


def _run_order(result: tuple[RunTask, Sequence[Any]]) -> tuple[str, int, str]:
    run = result[0]
    return run.device_id, run.position, run.task
