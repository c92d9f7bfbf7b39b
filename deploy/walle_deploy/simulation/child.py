"""The process that simulates one kind of devices: ``python -m walle_deploy.simulation.child``.

It replays recorded events, and counts runs in the same way as hosts.
"""

import os
import sys
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from walle_deploy.simulation.jobs import LENGTH, PROGRESS, STUCK, Job, VersionResult, adapted
from walle_deploy.simulation.report import FailedRun, VersionRun
from walle_stream.app.programs.replay import ReplayedRun, ReplayLimits, replay
from walle_stream.errors import WalleError
from walle_stream.events import Event
from walle_stream.ports import EventBatch
from walle_stream.vm.memory import limit_data
from walle_stream.vm.process.guard import tie_to_host
from walle_stream.wire.buckets import bucket_of

LINE_MAX: Final = 400
_US: Final = 1_000.0
_decode_event: Final = msgspec.json.Decoder(Event).decode


def main() -> None:
    """Read the job, and write the results."""
    out = os.dup(1)
    os.dup2(2, 1)  # nothing else may write to the results
    job = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Job)
    tie_to_host(job.host_pid)
    lines = [line for line in job.events.splitlines() if line.strip()]
    limit_data(2 * job.memory_bytes)
    with open(out, "wb") as stream:  # noqa: PTH123 - a descriptor
        for index, package in enumerate(job.packages):
            result = VersionResult(index, VersionRun(""))
            try:
                _run_version(result, package, job, lines)
            except WalleError as error:
                result.run.ended = f"{type(error).__name__}: {error}"
            packed = msgspec.msgpack.encode(result)
            stream.write(LENGTH.pack(len(packed)) + packed)
            stream.flush()


def _run_version(result: VersionResult, package: bytes, job: Job, lines: Sequence[bytes]) -> None:
    adapted_package = adapted(package, job)
    result.run.version = adapted_package.manifest.task.version
    limits = ReplayLimits(
        job.page_timeout_ms, job.out_of_order_ms, job.page_max_events, job.memory_bytes
    )

    def tell(number: int) -> None:
        os.pwrite(job.progress_fd, PROGRESS.pack(result.index, number), 0)

    batches = (EventBatch([_decode_event(line)]) for line in lines)
    for run in replay(adapted_package, batches, limits, tell, _end):
        _count(result, run, lines[run.number - 1] if lines else b"")


def _count(version: VersionResult, run: ReplayedRun, line: bytes) -> None:
    counted, result = version.run, run.result
    counted.runs += 1
    _add(counted.latency_us, bucket_of(run.took_ms * _US))
    if result.ok:
        size = sum(len(feature) + len(encoding) for feature, encoding in result.emits)
        _add(counted.output_bytes, bucket_of(size + 1))
        emitted: list[Any] = [result.emits, result.calls]
        digest = blake2b(msgspec.msgpack.encode(emitted), digest_size=12).digest()
        version.outputs.setdefault(run.device_id, {})[run.position] = digest
        return
    counted.failures += 1
    _add(counted.failure_classes, result.error)
    counted.strikes += run.is_stopped
    counted.crashes += run.is_crash
    if counted.first_failure is None:
        text = line.decode("utf-8", "replace")[:LINE_MAX]
        counted.first_failure = FailedRun(
            run.device_id, run.number, text, result.error, result.message
        )


def _end(_task: str, _device: str) -> None:
    os._exit(STUCK)


def _add[K](counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


if __name__ == "__main__":
    main()
