"""Runs a package in cloud VMs as kinds of devices would, beside the previous version.

Each kind has a process of its own. A script that crashes, fills its memory or never ends affects
only its kind. A kind whose interpreter is missing on this machine is reported as not simulated.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import Final, NamedTuple

import msgspec

from walle_deploy.simulation.events import check_events, read_events
from walle_deploy.simulation.interpreters import command_for
from walle_deploy.simulation.jobs import LENGTH, PROGRESS, STUCK, Job, VersionResult
from walle_deploy.simulation.kinds import DeviceKind, DeviceKindsSpec, Tolerances
from walle_deploy.simulation.report import (
    Drift,
    FailedRun,
    KindReport,
    SimulationReport,
    VersionRun,
)
from walle_stream.clock import monotonic_ms
from walle_stream.errors import ReleaseStateError, SourceError
from walle_stream.vm.package.reader import CURRENT_TAG, TaskPackage, read_package

_LINE_MAX: Final = 400
_LOOK_S: Final = 0.2
"""Time between two looks at ``stop``."""


def simulate(
    package: bytes,
    kinds: DeviceKindsSpec,
    events: bytes | None = None,
    previous: bytes | None = None,
    *,
    at_once: int = 0,
    stop: Event | None = None,
) -> SimulationReport:
    """Try a package on kinds of devices; blocks until all are done or out of time.

    ``events`` are JSON Lines for kinds without events of their own. ``at_once`` kinds run in
    parallel; 0 means one per core. Another thread may set ``stop`` to end the simulation.

    Raises:
        ReleaseStateError: The simulation was stopped.
        PackageError: A package is not valid.
        SourceError: Recorded events cannot be read, or a kind has none.
    """
    read = read_package(package)
    before = None if previous is None else read_package(previous)
    shared = None if events is None else check_events(events)
    recorded = [_events_of(kind, shared) for kind in kinds.kinds]
    versions = [version for version in (previous, package) if version is not None]
    count = at_once or os.process_cpu_count() or 1
    with ThreadPoolExecutor(min(count, len(kinds.kinds)), "walle-simulation") as threads:
        simulations = (_Kind(kind, kinds, read, before, stop or Event()) for kind in kinds.kinds)
        reports = tuple(
            threads.map(lambda kind, lines: kind.report(versions, lines), simulations, recorded)
        )
    return SimulationReport(
        task=read.manifest.task.name,
        version=read.manifest.task.version,
        previous_version="" if before is None else before.manifest.task.version,
        kinds=reports,
    )


def _events_of(kind: DeviceKind, shared: bytes | None) -> bytes:
    if kind.events is not None:
        return read_events(kind.events)
    if shared is None:
        raise SourceError(
            f"kind {kind.name!r} has no recorded events: name a file of events in the kind, or "
            "pass events for all kinds"
        )
    return shared


class _Kind(NamedTuple):
    """One kind's simulation. One thread."""

    kind: DeviceKind
    spec: DeviceKindsSpec
    package: TaskPackage
    before: TaskPackage | None
    stop: Event

    def report(self, versions: Sequence[bytes], events: bytes) -> KindReport:
        name, tag = self.kind.name, self.kind.interpreter or CURRENT_TAG
        known = self.package.manifest.interpreters
        if tag not in known:
            reason = f"the package was checked with {', '.join(known)}, not with {tag}"
            return KindReport(kind=name, status="failed", reasons=(reason,))
        command = command_for(tag)
        if isinstance(command, str):
            return KindReport(kind=name, status="not_simulated", reasons=(command,))
        if self.before is not None and tag not in self.before.manifest.interpreters:
            # there is no result to compare with
            versions = versions[-1:]
        results = self._run(versions, events, *command)
        candidate = results[len(versions) - 1]
        previous = results[0] if len(versions) > 1 else None
        drift = None if previous is None else _drift(previous, candidate)
        before = None if previous is None else previous.run
        reasons = _reasons(candidate.run, before, drift, self.spec.tolerances)
        is_idle = not reasons and not candidate.run.runs
        if is_idle:
            reasons = ("no recorded event wakes the task: record others",)
        return KindReport(
            kind=name,
            status="not_simulated" if is_idle else "failed" if reasons else "passed",
            reasons=reasons,
            candidate=candidate.run,
            previous=before,
            drift=drift,
        )

    def _run(
        self, versions: Sequence[bytes], events: bytes, executable: str, environment: dict[str, str]
    ) -> dict[int, VersionResult]:
        results: dict[int, VersionResult] = {}
        with tempfile.TemporaryFile() as progress:
            while len(results) < len(versions):
                first = len(results)
                progress.truncate(0)
                ended, out = self._child(
                    self._job(versions[first:], events, progress.fileno()), executable, environment
                )
                for result in _results(out):
                    results[first + result.index] = result
                if len(results) < len(versions):
                    index, number = PROGRESS.unpack(
                        os.pread(progress.fileno(), 8, 0).ljust(PROGRESS.size, b"\0")
                    )
                    at = max(first + index, len(results))
                    results[at] = VersionResult(at, _broken(versions[at], events, number, ended))
        return results

    def _job(self, versions: Sequence[bytes], events: bytes, progress_fd: int) -> Job:
        kind, sequence = self.kind, self.spec.sequence
        return Job(
            packages=list(versions),
            events=events,
            config=dict(kind.config),
            scale=kind.scale,
            steps=kind.steps or 0,
            memory_bytes=kind.memory,
            page_timeout_ms=sequence.page_timeout_ms,
            out_of_order_ms=sequence.out_of_order_ms,
            page_max_events=sequence.page_max_events,
            progress_fd=progress_fd,
            host_pid=os.getpid(),
        )

    def _child(self, job: Job, executable: str, environment: dict[str, str]) -> tuple[str, bytes]:
        """Return the reason for the child's end, and its output."""
        with tempfile.TemporaryFile() as job_file:
            # a file, not a pipe: a job is large, and a slow child reads it later
            job_file.write(msgspec.msgpack.encode(job))
            job_file.seek(0)
            child = subprocess.Popen(  # noqa: S603 - this interpreter, or one found on PATH
                [executable, "-P", "-m", "walle_deploy.simulation.child"],
                env=environment,
                stdin=job_file,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(job.progress_fd,),
            )
        with child:
            try:
                outputs = self._outputs(child)
            except BaseException:
                child.kill()
                raise
            if outputs is not None:
                out, err = outputs
                return _ending(child.returncode, err), out
            child.kill()
            out, _ = child.communicate()
        limit_s = self.spec.time_limit / 1000
        return f"it took longer than {limit_s:g} s (timeLimit) and was ended", out

    def _outputs(self, child: subprocess.Popen[bytes]) -> tuple[bytes, bytes] | None:
        """Return the child's output; None if its time is over.

        Raises:
            ReleaseStateError: ``stop`` was set.
        """
        until_ms = monotonic_ms() + self.spec.time_limit
        while monotonic_ms() < until_ms:
            if self.stop.is_set():
                raise ReleaseStateError(
                    "the simulation was stopped, because its result is no longer needed"
                )
            with suppress(subprocess.TimeoutExpired):
                return child.communicate(timeout=_LOOK_S)
        return None


def _ending(status: int, err: bytes) -> str:
    if status == STUCK:
        return "a run did not stop when it was told to (limits.wallTime, memory)"
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    last = err.decode("utf-8", "replace").strip().splitlines()[-1:]
    return f"its process ended with status {status}: {last[0][:_LINE_MAX] if last else 'no word'}"


def _results(out: bytes) -> list[VersionResult]:
    results, at = [], 0
    while at + LENGTH.size <= len(out):
        [size] = LENGTH.unpack_from(out, at)
        part = out[at + LENGTH.size : at + LENGTH.size + size]
        if len(part) < size:
            break  # the child died during this write
        results.append(msgspec.msgpack.decode(part, type=VersionResult))
        at += LENGTH.size + size
    return results


def _broken(package: bytes, events: bytes, number: int, ended: str) -> VersionRun:
    # a version that crashed its process: its earlier results are lost
    run = VersionRun(read_package(package).manifest.task.version, ended=ended)
    if number:
        line = events.split(b"\n")[number - 1]
        device = msgspec.json.decode(line)["device_id"]
        text = line.decode("utf-8", "replace")[:_LINE_MAX]
        run.first_failure = FailedRun(device, number, text, "", ended)
        run.runs = run.failures = run.crashes = 1
    return run


def _drift(previous: VersionResult, candidate: VersionResult) -> Drift | None:
    if previous.run.ended or candidate.run.ended:
        return None
    old, new = _flat(previous.outputs), _flat(candidate.outputs)
    both = old.keys() & new.keys()
    changed = sum(old[key] != new[key] for key in both)
    runs = max(previous.run.runs, candidate.run.runs)
    return Drift(runs, changed, len(old) + len(new) - 2 * len(both))


def _flat(outputs: Mapping[str, Mapping[int, bytes]]) -> dict[tuple[str, int], bytes]:
    return {
        (device, position): digest
        for device, by_position in outputs.items()
        for position, digest in by_position.items()
    }


def _reasons(
    run: VersionRun, previous: VersionRun | None, drift: Drift | None, tolerances: Tolerances
) -> tuple[str, ...]:
    reasons = []
    failed = run.first_failure
    where = f"first at event {failed.event} (device {failed.device})" if failed else ""
    if run.ended:
        reasons.append(f"{run.ended}, {where}" if where else run.ended)
    elif run.failures:
        rate = run.failures / run.runs
        # the failure rate of a version that crashed its process is unknown
        is_known = previous is not None and previous.runs and not previous.ended
        before = previous.failures / previous.runs if previous and is_known else 0.0
        if rate > max(tolerances.failure_rate, before):
            message = f": {failed.message}" if failed else ""
            reasons.append(
                f"{run.failures} of {run.runs} runs failed ({rate:.2%}, {before:.2%} before), "
                f"{where}{message}"
            )
    if drift is not None and drift.ratio > tolerances.drift:
        reasons.append(
            f"{drift.changed + drift.only_one} of {drift.runs} runs have other features than "
            f"before ({drift.ratio:.2%}, tolerated {tolerances.drift:.2%})"
        )
    return tuple(reasons)
