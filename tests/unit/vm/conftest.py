"""Fixtures for the VM tests: pools that are always closed, pages, one-shot runs."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from walle_stream.vm import watchdog
from walle_stream.vm.interpreters import live_count
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import VmPool
from walle_stream.vm.program import TaskProgram
from walle_stream.vm.results import GroupResult

LARGE = RunLimits(output_bytes=16 * 1024 * 1024)


PROCESS_LIMIT_MS = 1_500
"""A wall time of runs in a process of their own, whose clock is the machine's: no load keeps a
harmless run of microseconds from its end for so long."""


@pytest.fixture
def cpu_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchdog's clock moves with the CPU time of this process, where `shared` and `device` run.

    A loop moves it; neighbours that take the machine's cores do not.
    """
    given = getattr(request.node, "callspec", None)
    if given is not None and given.params.get("isolation") == "process":
        return
    monkeypatch.setattr(watchdog, "monotonic_ms", lambda: time.process_time() * 1_000.0)


@pytest.fixture
def quick_limits(cpu_clock: None) -> Callable[..., RunLimits]:
    """Limits with a short wall time for loops; longer under `process`, see there."""

    def limits(isolation: str, wall_time_ms: int = 100, **more: int) -> RunLimits:
        longer = max(wall_time_ms, PROCESS_LIMIT_MS)
        return RunLimits(wall_time_ms=longer if isolation == "process" else wall_time_ms, **more)

    return limits


class RunScript(Protocol):
    def __call__(
        self,
        source: str,
        *contents: dict[str, Any],
        state: dict[str, bytes] | None = None,
        config: dict[str, Any] | None = None,
        limits: RunLimits = LARGE,
    ) -> GroupResult: ...


def make_page(contents: dict[str, Any] | None = None, time_ms: int = 1_000) -> tuple[Any, ...]:
    rows = [
        ("page_enter", "page_enter", time_ms, time_ms, {"item": "v1"}),
        ("click", "click", time_ms + 10, time_ms, {"item": "v1", "widget": "like"}),
        ("page_exit", "page_exit", time_ms + 500, time_ms, contents),
    ]
    return ("video", "v1@1", "exit", time_ms, rows[-1], rows)


@pytest.fixture
def page() -> Callable[..., tuple[Any, ...]]:
    """A page of three events; the exit's contents are given."""
    return make_page


CHILD = """
import os, sys, threading
from walle_stream.vm.interpreters import Interpreter
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.program import TaskProgram
def code(text): return compile(text, "x", "exec")
def groups(*devices):
    row = ("a", "click", 1, 1, None)
    return [(d, {}, [(1, 0, ("p", "i", "none", None, row, [row]))]) for d in devices]
def watch_by_cpu():
    import time
    from walle_stream.vm import watchdog
    watchdog.monotonic_ms = lambda: time.process_time() * 1000.0
def task(source, **given): return {"t": TaskProgram("t", "v", source, "t.py", **given)}
"""


class RunChild(Protocol):
    def __call__(
        self, code: str, *arguments: str, first: str = "", common: str = CHILD
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def child_code() -> str:
    """What ``run_child`` puts before the code, for tests that talk with their child."""
    return CHILD


@pytest.fixture
def run_child() -> RunChild:
    """Runs code in a Python of its own, where dangers are real; ``CHILD`` comes before it."""

    def run(
        code: str, *arguments: str, first: str = "", common: str = CHILD
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", first + common + code, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return run


@pytest.fixture
def open_pool() -> Iterator[Callable[..., VmPool]]:
    """Opens a pool of one task ``t`` from a script; closed after the test."""
    pools: list[VmPool] = []
    before = live_count()

    def open_(
        source: str,
        size: int = 1,
        config: dict[str, Any] | None = None,
        limits: RunLimits = LARGE,
    ) -> VmPool:
        program = TaskProgram("t", "v1", source, "scripts/t.py", config or {}, limits)
        pools.append(VmPool({"t": program}, size))
        return pools[-1]

    yield open_
    for pool in pools:
        pool.close()
    assert live_count() == before


@pytest.fixture
def run_script(open_pool: Callable[..., VmPool]) -> RunScript:
    """Runs a script in a new VM for one device, one run per contents given."""

    def run(
        source: str,
        *contents: dict[str, Any],
        state: dict[str, bytes] | None = None,
        config: dict[str, Any] | None = None,
        limits: RunLimits = LARGE,
    ) -> GroupResult:
        pool = open_pool(source, config=config, limits=limits)
        given = contents or ({},)
        runs = [(n, 1_500, make_page(item or None)) for n, item in enumerate(given, start=1)]
        (group,) = pool.run("t", [("device-1", state or {}, runs)])
        return group

    return run
