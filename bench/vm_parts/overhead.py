"""The cost of a call without the script's own work."""

import os
import statistics
import threading
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

from vm_parts.measuring import Settings, say
from vm_parts.plain import load, open_run, tune_gc
from vm_parts.scripts import EMPTY, Batch, compiled, make_batch, program
from walle_stream.vm.doorbell import Doorbell
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.guest.page import Page
from walle_stream.vm.interpreters import Interpreter
from walle_stream.vm.pool import VmPool
from walle_stream.vm.virtual_machine import VirtualMachine

BATCH_SIZES: Final = (1, 10, 100, 1_000)
"""Runs per call; every run's page is one event."""

_ECHO: Final = compile(
    "from os import read, write\nwhile read(_wake, 8) != _end: write(_done, b'\\x01' + bytes(7))\n",
    "<bench>",
    "exec",
)
_END: Final = (2).to_bytes(8, "little")


def measure_overhead(settings: Settings) -> dict[str, Any]:
    """Measure a call by batch size, and a bare round trip between two interpreters."""
    tune_gc()
    random = Random(settings.seed)
    rows = []
    with VmPool({"bench": program(EMPTY)}, 1) as pool:
        machine = VirtualMachine(compiled(EMPTY))
        for size in BATCH_SIZES:
            batch = make_batch(random, size, 1)
            rows.append(_measure_size(pool, machine, batch, size, settings))
        machine.destroy()
    return {"floor_us": _floor_us(settings), "by_batch": rows}


def _measure_size(
    pool: VmPool, machine: VirtualMachine, batch: Batch, size: int, settings: Settings
) -> dict[str, Any]:
    run = load(EMPTY)
    ready = [
        (open_run(device_id, {}, 1, 1), Page(page))
        for device_id, _, runs in batch
        for _, _, page in runs
    ]

    def direct() -> None:
        for context, page in ready:
            run(context, page)

    ways: dict[str, Callable[[], object]] = {
        "pool": lambda: pool.run("bench", batch),
        "machine": lambda: machine.call(batch, encode_groups(batch)),
        "direct": direct,
    }
    times = interleaved_us(ways, settings.repeats, settings.target_s / 10)
    call_us = statistics.median(times["pool"]) - statistics.median(times["direct"])
    machine_us = statistics.median(times["machine"]) - statistics.median(times["direct"])
    say(f"call of {size}: {call_us:.1f} us, {call_us / size:.2f} us an event")
    return {
        "batch_size": size,
        "call_us": round(call_us, 2),
        "event_us": round(call_us / size, 3),
        "machine_call_us": round(machine_us, 2),
        "direct_us": round(statistics.median(times["direct"]), 3),
        "repeats_us": [round(value, 2) for value in times["pool"]],
    }


def interleaved_us(
    ways: dict[str, Callable[[], object]], repeats: int, target_s: float
) -> dict[str, list[float]]:
    """Time some ways in turn, so that what drifts falls on all alike.

    Returns:
        By way, per repeat the median microseconds of a call.
    """
    found: dict[str, list[float]] = {name: [] for name in ways}
    clock = time.perf_counter_ns
    for way in ways.values():
        way()
    for _ in range(repeats):
        for name, way in ways.items():
            times = []
            end = clock() + int(target_s * 1e9)
            now = clock()
            while now < end:
                way()
                before, now = now, clock()
                times.append(now - before)
            found[name].append(statistics.median(times) / 1000.0)
    return found


def _floor_us(settings: Settings) -> dict[str, Any]:
    # a thread that blocks inside another interpreter: wake it, wait for its ring
    wake, done = Doorbell(), Doorbell()

    def live() -> None:
        interpreter = Interpreter()
        interpreter.share(_wake=wake.read_fd, _done=done.write_fd, _end=_END)
        interpreter.execute(_ECHO)
        interpreter.destroy()

    thread = threading.Thread(target=live)
    thread.start()

    def round_trip() -> None:
        wake.ring()
        done.wait()

    times = interleaved_us({"trip": round_trip}, settings.repeats, settings.target_s / 5)["trip"]
    os.write(wake.write_fd, _END)
    thread.join()
    wake.close()
    done.close()
    return {
        "median": round(statistics.median(times), 2),
        "repeats": [round(value, 2) for value in times],
    }
