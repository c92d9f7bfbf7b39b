"""Replay of one version of a task over recorded events, before any device has it.

The events pass through the parts of a real host: the machine of page sequences and triggers, and a
pool of VMs. Nothing is stored. Each run is a call of its own, so that its time and the cause of a
crash are known.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from walle_stream.actors.turns.attempts import QUARANTINED
from walle_stream.app.programs.evaluating import LazyEvaluator
from walle_stream.clock import monotonic_ms
from walle_stream.stream.commands import Runs
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import SetDefinition
from walle_stream.vm.guest.state import merge
from walle_stream.vm.memory import resident_bytes
from walle_stream.vm.package.reader import TaskPackage
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.results import RunInput, RunResult
from walle_stream.vm.services import HostServices
from walle_stream.vm.task_pool import STOPPED
from walle_stream.wire.event_batch import EventBatch


class ReplayLimits(NamedTuple):
    """Limits of pages and memory."""

    page_timeout_ms: int | None
    out_of_order_ms: int
    page_max_events: int
    memory_bytes: int
    """Memory in addition to that of this process."""


class ReplayedRun(NamedTuple):
    """One run of the task."""

    device_id: str
    position: int
    """Position of the trigger in the device's sequence."""
    number: int
    """Number of the batch that woke the run, from 1."""
    took_ms: float
    result: RunResult
    is_stopped: bool
    """Whether a limit stopped the run."""
    is_crash: bool
    """Whether the run ended its VM; it is not run there again."""


def replay(
    package: TaskPackage,
    batches: Iterable[EventBatch],
    limits: ReplayLimits,
    tell: Callable[[int], None],
    end: Callable[[str, str], None],
) -> Iterator[ReplayedRun]:
    """Run a task on recorded events; blocks, and yields each run.

    Args:
        package: The task to run.
        batches: The events in order.
        limits: Limits of pages and memory.
        tell: Called with the number of the next batch, and with 0 while the task loads.
        end: Called with task and device of a script that cannot be stopped: ends this process.

    Raises:
        WalleError: The task cannot be loaded.
    """
    task, program = package.manifest.task, package.program()
    pool_limits = PoolLimits(vms=1, memory_bytes=limits.memory_bytes + resident_bytes())
    states: dict[str, dict[str, bytes]] = {}
    tell(0)
    with VmPool(
        {task.name: program}, pool_limits, end, services=HostServices(LazyEvaluator({}))
    ) as pool:

        def run(device_id: str, run_input: RunInput, number: int) -> ReplayedRun:
            state = states.setdefault(device_id, {})
            began_ms = monotonic_ms()
            [group] = pool.run(task.name, [(device_id, state, [run_input])])
            took_ms = monotonic_ms() - began_ms
            merge(state, group.state)
            [result] = group.runs
            why = "" if result.ok else result.error
            is_crash = why == QUARANTINED
            return ReplayedRun(
                device_id, run_input[0], number, took_ms, result, why in STOPPED, is_crash
            )

        for number, runs in _woken(package, batches, limits):
            tell(number)
            for by_device in runs.values():
                for device_id, own_runs in by_device.items():
                    for run_input in own_runs:
                        yield run(device_id, run_input, number)


def _woken(
    package: TaskPackage, batches: Iterable[EventBatch], limits: ReplayLimits
) -> Iterator[tuple[int, Runs]]:
    task = package.manifest.task
    policy = SequencePolicy(
        page_timeout_ms=limits.page_timeout_ms,
        out_of_order_ms=limits.out_of_order_ms,
        page_max_events=limits.page_max_events,
        fields=None if task.fields is None else frozenset(task.fields),
    )
    pages = {} if task.pages is None else {task.name: frozenset(task.pages)}
    definition = SetDefinition({task.name: task.triggers}, policy, pages)
    machine = PartitionMachine(lambda _: definition)
    number = 0
    for number, batch in enumerate(batches, 1):
        for device_id in machine.absent(batch):
            machine.activate(device_id, None, tuple)
        machine.number = number
        yield number, machine.take(batch).runs
    yield number, machine.take(EventBatch([]), is_end=True).runs
