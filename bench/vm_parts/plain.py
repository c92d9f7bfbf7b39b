"""A task's script as a plain function: no guards, no isolation, no marshalling.

Standard library and the guest's own classes alone, so that it also runs in the
interpreters of an ``InterpreterPoolExecutor``.
"""

import gc
from collections.abc import Callable, Sequence
from typing import Any, Final

from walle_stream.vm.guest.context import Context, Limits, bind_context
from walle_stream.vm.guest.page import Page
from walle_stream.vm.guest.state import State

LIMITS: Final[Limits] = (16 * 1024 * 1024, 10_000, 100, 3_600_000, 3, 0, 1024 * 1024)
"""Bounds of a run, as wide as the VMs'."""

_make_context: Final = bind_context("bench", {}, LIMITS, {}, bytes)

type Outcome = tuple[str, dict[str, bytes | None], list[list[bytes]]]
"""(device, changes of its state, per run feature, encoding, feature, ...)."""


def load(source: str) -> Callable[[Any, Any], Any]:
    """Execute a script once and return its ``run``."""
    namespace: dict[str, Any] = {"__name__": "task"}
    exec(compile(source, "bench.py", "exec"), namespace)  # noqa: S102 - our own script
    return namespace["run"]  # type: ignore[no-any-return]


def open_run(device_id: str, state: dict[str, bytes], position: int, clock_ms: int) -> Context:
    """Make the ``ctx`` of a run."""
    return _make_context(device_id, position, clock_ms, State(state))


def run_groups(
    run: Callable[[Any, Any], Any], groups: Sequence[tuple[str, dict[str, bytes], Any]]
) -> list[Outcome]:
    """Run a batch as a session does, in this interpreter."""
    outcomes = []
    for device_id, given, runs in groups:
        state = dict(given)
        changes: dict[str, bytes | None] = {}
        emitted = []
        for position, clock_ms, page in runs:
            context = open_run(device_id, state, position, clock_ms)
            run(context, Page(page))
            overlay = context.state._overlay_
            if overlay:
                changes.update(overlay)
                state.update((key, data) for key, data in overlay.items() if data is not None)
            emitted.append(context._emitted_)
        outcomes.append((device_id, changes, emitted))
    return outcomes


def tune_gc() -> None:
    """Set the garbage collector as a VM's session does: every contender has the same."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


# what an executor's interpreter calls: loaded once, kept
_loaded: dict[str, Callable[[Any, Any], Any]] = {}


def run_loaded(source: str, groups: Sequence[tuple[str, dict[str, bytes], Any]]) -> list[Outcome]:
    """Run a batch of a script that is loaded at its first batch."""
    run = _loaded.get(source)
    if run is None:
        run = _loaded[source] = load(source)
        tune_gc()
    return run_groups(run, groups)
