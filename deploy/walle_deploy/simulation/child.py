"""The process that simulates one kind of devices: ``python -m walle_deploy.simulation.child``.

It runs the recorded events through the parts of a real host: the machine of page sequences and
triggers, and a pool of VMs. Nothing is stored, and every run is a call of its own: its time is its
own, and what ends the process is known.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from walle_deploy.simulation.jobs import LENGTH, PROGRESS, STUCK, Job, VersionResult, adapted
from walle_deploy.simulation.report import FailedRun, VersionRun
from walle_stream.actors.turns.attempts import QUARANTINED
from walle_stream.actors.turns.task_states import apply_changes
from walle_stream.clock import monotonic_ms
from walle_stream.errors import WalleError
from walle_stream.events import Event
from walle_stream.stream.commands import Runs
from walle_stream.stream.machine import PartitionMachine
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import SetDefinition
from walle_stream.vm.memory import limit_data, resident_bytes
from walle_stream.vm.package.reader import TaskPackage
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.process.guard import tie_to_host
from walle_stream.vm.results import RunInput, RunResult
from walle_stream.vm.services import HostServices
from walle_stream.vm.task_pool import STOPPED
from walle_stream.wire.buckets import bucket_of
from walle_stream.wire.event_batch import EventBatch
from walle_stream.wire.graph import Constant, Graph

LINE_MAX: Final = 400
_US: Final = 1_000.0
_decode_event: Final = msgspec.json.Decoder(Event).decode


class _Evaluator:
    # numpy is brought in by the first script that has tensors; models are the pipeline's

    def evaluate(self, graph: Graph) -> list[Constant]:
        return self.evaluate_all([graph])[0]

    def evaluate_all(self, graphs: Sequence[Graph]) -> list[list[Constant]]:
        from walle_stream.engine.backends.numpy import NumpyBackend  # noqa: PLC0415 - see above
        from walle_stream.engine.expressions import EngineEvaluator  # noqa: PLC0415 - see above

        results: list[list[Constant]] = EngineEvaluator(NumpyBackend(), {}).evaluate_all(graphs)
        return results


class _Replay:
    """One version on the recorded events."""

    def __init__(self, index: int, package: TaskPackage, job: Job) -> None:
        self._index = index
        self._job = job
        self._task = package.manifest.task
        self._program = package.program()
        self.result = VersionResult(index, VersionRun(self._task.version, 0, 0, {}, 0, 0, {}, {}))
        self.result.outputs = {}
        self._states: dict[str, dict[str, bytes]] = {}

    def run(self, lines: Sequence[bytes]) -> None:
        """Run it; what is wrong with it is in the result."""
        memory_bytes = self._job.memory_bytes + resident_bytes()
        limits = PoolLimits(vms=1, memory_bytes=memory_bytes)
        services = HostServices(_Evaluator())
        self._tell(0)
        with VmPool({self._task.name: self._program}, limits, _end, services=services) as pool:
            for number, runs in self._woken(lines):
                line = lines[number - 1] if lines else b""
                self._tell(number)
                for by_device in runs.values():
                    for device_id, own_runs in by_device.items():
                        for run_input in own_runs:
                            self._run(pool, device_id, run_input, number, line)

    def _woken(self, lines: Sequence[bytes]) -> Iterator[tuple[int, Runs]]:
        task = self._task
        pages = {} if task.pages is None else {task.name: frozenset(task.pages)}
        definition = SetDefinition({task.name: task.triggers}, self._policy(), pages)
        machine = PartitionMachine(lambda _: definition)
        for number, line in enumerate(lines, 1):
            batch = EventBatch([_decode_event(line)])
            for device_id in machine.absent(batch):
                machine.activate(device_id, None, tuple)
            machine.number = number
            yield number, machine.take(batch).runs
        yield len(lines), machine.take(EventBatch([]), is_end=True).runs

    def _run(
        self, pool: VmPool, device_id: str, run_input: RunInput, number: int, line: bytes
    ) -> None:
        state = self._states.setdefault(device_id, {})
        began_ms = monotonic_ms()
        [group] = pool.run(self._task.name, [(device_id, state, [run_input])])
        took_us = (monotonic_ms() - began_ms) * _US
        apply_changes(state, group.state)
        [result] = group.runs
        counted = self.result.run
        counted.runs += 1
        _add(counted.latency_us, bucket_of(took_us))
        if result.ok:
            size = sum(len(feature) + len(encoding) for feature, encoding in result.emits)
            _add(counted.output_bytes, bucket_of(size + 1))
            outputs = self.result.outputs.setdefault(device_id, {})
            outputs[run_input[0]] = _digest(result)
            return
        counted.failures += 1
        _add(counted.failure_classes, result.error)
        counted.strikes += result.error in STOPPED
        counted.crashes += result.error == QUARANTINED
        if counted.first_failure is None:
            text = line.decode("utf-8", "replace")[:LINE_MAX]
            counted.first_failure = FailedRun(device_id, number, text, result.error, result.message)

    def _policy(self) -> SequencePolicy:
        job, fields = self._job, self._task.fields
        return SequencePolicy(
            page_timeout_ms=job.page_timeout_ms,
            out_of_order_ms=job.out_of_order_ms,
            page_max_events=job.page_max_events,
            fields=None if fields is None else frozenset(fields),
        )

    def _tell(self, number: int) -> None:
        os.pwrite(self._job.progress_fd, PROGRESS.pack(self._index, number), 0)


def main() -> None:
    """Read the job, write the results."""
    out = os.dup(1)
    os.dup2(2, 1)  # nobody else may write among them
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    tie_to_host(job.host_pid)
    lines = [line for line in job.events.splitlines() if line.strip()]
    limit_data(2 * job.memory_bytes)
    with open(out, "wb") as stream:  # noqa: PTH123 - a descriptor
        for index, package in enumerate(job.packages):
            result = VersionResult(index, VersionRun(""))
            try:
                replay = _Replay(index, adapted(package, job), job)
                result = replay.result
                replay.run(lines)
            except WalleError as error:
                result.run.ended = f"{type(error).__name__}: {error}"
            packed = msgspec.msgpack.encode(result)
            stream.write(LENGTH.pack(len(packed)) + packed)
            stream.flush()


def _end(_task: str, _device: str) -> None:
    os._exit(STUCK)


def _digest(result: RunResult) -> bytes:
    parts: list[Any] = [result.emits, result.calls]
    return blake2b(msgspec.msgpack.encode(parts), digest_size=12).digest()


def _add[K](counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


if __name__ == "__main__":
    main()
