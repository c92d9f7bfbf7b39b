"""Who runs a batch: VMs, GIL threads, processes, ``InterpreterPoolExecutor``.

All are driven alike: N threads of the bench, each with one call in flight. A
contender's ``run`` is what a caller has to do to get results he can use: for
VMs and processes that includes encoding the batch and cutting the result.
"""

import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from vm_parts.plain import Outcome, load, run_groups, run_loaded
from vm_parts.scripts import Batch, compiled, program
from vm_parts.worker import READY, receive, send
from walle_stream.vm.frames import decode_results, encode_groups
from walle_stream.vm.pool import VmPool
from walle_stream.vm.results import GroupResult

ROOT: Final = Path(__file__).resolve().parents[2]
BENCH: Final = ROOT / "bench"
_PIPE_BYTES: Final = 1024 * 1024
_HAS_EXECUTOR: Final = sys.version_info >= (3, 14)


class Contender(Protocol):
    """Runs batches of one script, several at once."""

    name: str

    def run(self, slot: int, batch: Batch) -> list[Any]:
        """Run a batch; ``slot`` is the caller's number, one call at a time each."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Vms:
    """N VMs in a pool."""

    name = "vms"

    def __init__(self, source: str, count: int) -> None:
        """Open the pool."""
        self._pool = VmPool({"bench": program(source)}, count)

    def run(self, slot: int, batch: Batch) -> list[GroupResult]:  # noqa: ARG002 - the pool picks
        """Run a batch in the VM that is free."""
        return self._pool.run("bench", batch)

    def close(self) -> None:
        """Destroy the VMs."""
        self._pool.close()


class Threads:
    """N threads under one GIL: the callers themselves run a plain function."""

    name = "threads"

    def __init__(self, source: str, count: int) -> None:  # noqa: ARG002 - all share it
        """Load the script."""
        self._run = load(source)

    def run(self, slot: int, batch: Batch) -> list[Outcome]:  # noqa: ARG002 - same
        """Run a batch in this thread."""
        return run_groups(self._run, batch)

    def close(self) -> None:
        """Nothing was taken."""


class Processes:
    """N processes fed by pipes: the control."""

    name = "processes"

    def __init__(self, source: str, count: int) -> None:
        """Start the workers and load the script."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(BENCH)))}
        packed = compiled(source).packed
        self._workers = []
        for _ in range(count):
            worker = subprocess.Popen(
                [sys.executable, "-m", "vm_parts.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=environment,
            )
            if worker.stdin is None or worker.stdout is None:
                raise RuntimeError("a worker has no pipes")
            self._workers.append((worker, worker.stdin.fileno(), worker.stdout.fileno()))
            for fd in self._workers[-1][1:]:
                with suppress(OSError, AttributeError):  # larger pipes are a Linux thing
                    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            send(self._workers[-1][1], packed)
        for _, _, from_fd in self._workers:
            if receive(from_fd) != READY:
                raise RuntimeError("a worker process did not start: its traceback stands above")

    def run(self, slot: int, batch: Batch) -> list[GroupResult]:
        """Run a batch in the caller's own worker."""
        _, to_fd, from_fd = self._workers[slot]
        send(to_fd, encode_groups(batch))
        answer = receive(from_fd)
        if not answer:
            raise RuntimeError("a worker process ended: its traceback stands above")
        return decode_results(batch, answer)

    def close(self) -> None:
        """End the workers."""
        for worker, _, _ in self._workers:
            worker.communicate()


class Executor:
    """N interpreters of the standard library's executor, a plain function in each."""

    name = "executor"

    def __init__(self, source: str, count: int) -> None:
        """Start the interpreters; they find our modules by path."""
        from concurrent.futures import (  # noqa: PLC0415 - not in Python 3.13
            InterpreterPoolExecutor,  # type: ignore[attr-defined,unused-ignore]
        )

        paths = f"import sys; sys.path[:0] = {[str(BENCH), str(ROOT)]!r}"
        self._source = source
        self._pool = InterpreterPoolExecutor(count, initializer=exec, initargs=(paths,))

    def run(self, slot: int, batch: Batch) -> list[Outcome]:  # noqa: ARG002 - the executor picks
        """Run a batch; arguments and results cross as the executor does it."""
        return self._pool.submit(run_loaded, self._source, batch).result()  # type: ignore[no-any-return,unused-ignore]

    def close(self) -> None:
        """End the interpreters."""
        self._pool.shutdown()


def open_all(source: str, count: int) -> dict[str, Contender]:
    """Open every contender that this Python has."""
    found: dict[str, Contender] = {}
    kinds: list[type[Threads | Executor | Processes | Vms]] = [Threads, Processes, Vms]
    if _HAS_EXECUTOR:
        kinds.insert(1, Executor)
    try:
        for kind in kinds:
            found[kind.name] = kind(source, count)
    except BaseException:
        for contender in found.values():
            contender.close()
        raise
    return found


def normal(results: list[Any]) -> list[Outcome]:
    """Return any contender's results in one form, to be compared.

    Raises:
        RuntimeError: A run failed.
    """
    outcomes: list[Outcome] = []
    for result in results:
        if not isinstance(result, GroupResult):
            outcomes.append(result)
            continue
        for run in result.runs:
            if not run.ok:
                raise RuntimeError(run.message)
        emitted = [[part for pair in run.emits for part in pair] for run in result.runs]
        outcomes.append((result.device_id, result.state, emitted))
    return outcomes
