"""Differential suite for cores: another implementation must give the reference's bytes.

Subclass ``CoreSuite`` in a test file and implement ``make_core``; pytest then compares the core
with ``PartitionMachine`` over seeded lives. ``compare`` runs a single life, for longer campaigns.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from functools import partial
from random import Random
from typing import Any, ClassVar

import msgspec

from walle_stream.actors.opening.recovery import replay
from walle_stream.stream.commands import Runs, RunTask
from walle_stream.stream.interface import Core, FindSet, MakeCore
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.pages import plain_page
from walle_stream.stream.snapshots import DeviceRows
from walle_stream.testing.core_streams import Life, Turn, made_life
from walle_stream.wire.event_batch import EventBatch
from walle_stream.wire.journal import decode_batch, encode_batch
from walle_stream.wire.page_rows import PageRows

type Output = tuple[str, bytes]
"""Name of an output and its value as MessagePack."""


class MemoryRows:
    """In-memory rows of a partition's database."""

    def __init__(self) -> None:
        """Start without rows."""
        self.devices: dict[str, bytes] = {}
        self.pages: dict[str, dict[tuple[int, int], bytes]] = {}
        """Page rows by device, then by page ordinal and index."""
        self.deadlines: dict[str, int] = {}
        self.batches: dict[int, bytes] = {}

    def put(self, deltas: Iterable[DeviceRows]) -> None:
        """Write the changes of devices."""
        for delta in deltas:
            self.devices[delta.device_id] = delta.row
            pages = self.pages.setdefault(delta.device_id, {})
            pages.update(((ordinal, index), row) for ordinal, index, row in delta.page_rows)
            for ordinal, count in delta.closed_pages:
                for index in range(count):
                    del pages[ordinal, index]
            if delta.deadline_ms is None:
                self.deadlines.pop(delta.device_id, None)
            else:
                self.deadlines[delta.device_id] = delta.deadline_ms

    def drop_batches(self, oldest_dirty: int | None) -> None:
        """Delete the batches that are completely stored.

        Args:
            oldest_dirty: The core's ``oldest_dirty``.
        """
        for number in list(self.batches):
            if oldest_dirty is None or number < oldest_dirty:
                del self.batches[number]

    def wake(self, core: Core, device_ids: Iterable[str]) -> None:
        """Load the devices that are not in memory."""
        for device_id in device_ids:
            if not core.is_active(device_id):
                row = self.devices.get(device_id)
                core.activate(device_id, row, partial(self._pages, device_id))

    def _pages(self, device_id: str) -> Iterator[tuple[int, bytes]]:
        for (ordinal, _), row in sorted(self.pages.get(device_id, {}).items()):
            yield ordinal, row


def replayed(rows: MemoryRows, find_set: FindSet, make_core: MakeCore = PartitionMachine) -> Core:
    """Recover as after a crash: replay the batches and write every device.

    Args:
        rows: The stored rows.
        find_set: Returns task sets.
        make_core: Makes the core.
    """
    core = make_core(find_set)
    batches = [(number, decode_batch(row)) for number, row in rows.batches.items()]
    replay(core, batches, sorted(rows.deadlines.items()), partial(rows.wake, core))
    rows.put(core.delta())
    rows.batches.clear()
    return core


class CoreSuite(ABC):
    """Tests that every core must pass; pytest collects the subclasses."""

    seeds: ClassVar[range] = range(300)
    """Seeds of the compared lives."""

    @abstractmethod
    def make_core(self, find_set: FindSet) -> Core:
        """Return an empty core; see ``MakeCore``."""

    def test_it_gives_the_bytes_of_the_reference(self) -> None:
        """All rows and runs are the same for any input."""
        for seed in self.seeds:
            compare(self.make_core, seed)


def compare(make_core: MakeCore, seed: int) -> None:
    """Compare a core with the reference over one life.

    Args:
        make_core: Makes the core.
        seed: Seed of the life.

    Raises:
        AssertionError: The outputs differ; the message has the first difference.
    """
    wanted = list(played(PartitionMachine, made_life(seed)))
    step = 0
    for step, found in enumerate(played(make_core, made_life(seed)), 1):
        expected = wanted[step - 1] if step <= len(wanted) else ("nothing", b"")
        if found != expected:
            name, value = found
            raise AssertionError(
                f"seed {seed}, output {step}: {name} is {_shown(value)}, "
                f"the reference gives {expected[0]} {_shown(expected[1])}"
            )
    if step < len(wanted):
        raise AssertionError(f"seed {seed}: {len(wanted) - step} outputs are missing")


def played(make_core: MakeCore, life: Life) -> Iterator[Output]:
    """Run a life and yield all outputs of the core.

    Args:
        make_core: Makes the core, at the start and after each crash.
        life: The life, whose events are consumed.
    """
    for name, value in _Partition(make_core, life).run():
        yield name, msgspec.msgpack.encode(value)


class _Partition:
    def __init__(self, make_core: MakeCore, life: Life) -> None:
        self._life = life
        self._make_core = make_core
        self._rows = MemoryRows()
        self._watermark_ms, self._number = -1, 1
        self._core = make_core(life.sets.__getitem__)

    def run(self) -> Iterator[tuple[str, Any]]:
        for turn in self._life.turns:
            if turn.dies_before:
                yield from self._take(turn)
                yield from self._die()
            parts, before_ms = [], self._watermark_ms
            for name, value in self._take(turn):
                if name == "encoded":
                    parts.append(value)
                yield name, value
            yield from self._commit(turn, parts, before_ms)
            if turn.dies_behind:
                yield from self._die()
        yield "last delta", self._core.delta()

    def _take(self, turn: Turn) -> Iterator[tuple[str, Any]]:
        core, rows, woken = self._core, self._rows, list[Runs]()
        core.number = self._number
        for index, events in enumerate(turn.batches, 1):
            batch, is_end = EventBatch(list(events)), turn.is_end and index == len(turn.batches)
            absent = core.absent(batch, is_end=is_end)
            yield "absent", absent
            rows.wake(core, absent)
            found = core.take(batch, is_end=is_end)
            woken.append(found.runs)
            yield "woken", (_plain(found.runs), *found[1:])
            yield "encoded", batch.encoded
        rows.wake(core, [reply.device_id for reply in turn.replies])
        woken.append(core.answer(turn.replies))
        yield "answered", _plain(woken[-1])
        yield from self._complete(woken)
        for device_id, set_id in turn.installs:
            rows.wake(core, [device_id])
            core.install(device_id, set_id)
            yield "task set", core.task_set(device_id)

    def _complete(self, woken: list[Runs]) -> Iterator[tuple[str, Any]]:
        runs = [
            RunTask(device_id, task, *given, program)
            for part in woken
            for (task, program), by_device in part.items()
            for device_id, own_runs in by_device.items()
            for given in own_runs
        ]
        Random(len(runs)).shuffle(runs)  # noqa: S311 - VMs answer in any order
        emits = [(run, list(range(run.position % 3))) for run in runs]
        calls = [(run, ["call"]) for run in runs if run.position % 5 == 1]
        yield (
            "features",
            [
                (run.device_id, run.task, run.program, run.position, run.clock_ms, *numbered)
                for run, *numbered in self._core.complete(emits)
            ],
        )
        yield (
            "calls",
            [
                (run.device_id, run.task, *numbered)
                for run, *numbered in self._core.complete_calls(calls)
            ],
        )

    def _commit(self, turn: Turn, parts: list[bytes], before_ms: int) -> Iterator[tuple[str, Any]]:
        core, rows, number = self._core, self._rows, self._number
        numbers = core.numbers()
        row = encode_batch(
            parts, before_ms, is_end=turn.is_end, numbers=numbers, installs=turn.installs
        )
        rows.batches[number] = row
        yield "journal", row
        leaving = core.excess(turn.keep)
        yield "leaving", leaving
        delta = core.delta(number - turn.horizon, leaving)
        yield "delta", delta
        rows.put(delta)
        oldest = core.oldest_dirty
        yield "oldest dirty", oldest
        rows.drop_batches(oldest)
        yield "counts", (msgspec.structs.asdict(core.counts), core.watermark_ms)
        core.mark_committed()
        core.passivate(leaving)
        yield "active", (core.active_count, msgspec.structs.asdict(core.counts))
        self._number, self._watermark_ms = number + 1, core.watermark_ms

    def _die(self) -> Iterator[tuple[str, Any]]:
        rows, find_set = self._rows, self._life.sets.__getitem__
        replayed(rows, find_set, self._make_core)
        yield "replayed", (rows.devices, sorted(rows.pages.items()), rows.deadlines)
        core = self._core = self._make_core(find_set)
        core.watermark_ms = self._watermark_ms
        for device_id, deadline_ms in sorted(rows.deadlines.items()):
            core.arm(device_id, deadline_ms)


def _plain(runs: Runs) -> Any:
    return [
        (*program, device_id, [(*given[:2], _seen(given[2])) for given in own_runs])
        for program, by_device in runs.items()
        for device_id, own_runs in by_device.items()
    ]


def _seen(page: Any) -> Any:
    packed = b""
    if isinstance(page[0], PageRows):
        rows, count = page
        packed = rows.packed(rows.place(count)[2])
    return plain_page(page), packed


def _shown(value: bytes) -> str:
    return repr(msgspec.msgpack.decode(value) if value else None)
