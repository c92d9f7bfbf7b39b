"""A VM that never comes back: what its neighbours feel, how soon it is stopped."""

import statistics
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Any, Final

from vm_parts.measuring import Settings, distribution, quantile, say
from vm_parts.plain import tune_gc
from vm_parts.scripts import LIGHT, RUNAWAYS, Batch, compiled, make_batch, program
from walle_stream.vm.frames import encode_groups
from walle_stream.vm.limits import RunLimits
from walle_stream.vm.pool import VmPool
from walle_stream.vm.virtual_machine import VirtualMachine

if TYPE_CHECKING:
    from walle_stream.vm.results import GroupResult

_WALL_TIME_MS: Final = 50
_NEVER_OUT: Final = 1_000_000  # strikes: the runaway must go on and on
_BATCH_SIZE: Final = 100
_EVENTS: Final = 6
_HEAD_START_S: Final = 0.005
_AGAIN_S: Final = 2.0


def measure_interference(settings: Settings) -> dict[str, Any]:
    """Measure the neighbours' times, then single stops."""
    tune_gc()
    return {"neighbours": _neighbours(settings), "stops": _all_stops(settings)}


def _neighbours(settings: Settings) -> dict[str, Any]:
    random = Random(settings.seed)
    batches = [make_batch(random, _BATCH_SIZE, _EVENTS) for _ in range(4)]
    runaway = program(
        RUNAWAYS["plain loop"], RunLimits(wall_time_ms=_WALL_TIME_MS, strikes=_NEVER_OUT)
    )
    quiet: list[float] = []
    beside: list[float] = []
    ratios = []
    with VmPool({"light": program(LIGHT), "runaway": runaway}, 1) as pool:
        _light_ms(pool, batches, settings.target_s / 5)
        for _ in range(settings.repeats):
            calm = _light_ms(pool, batches, settings.target_s)
            is_over = threading.Event()
            spinner = threading.Thread(target=_spin, args=(pool, batches[0][:1], is_over))
            spinner.start()
            time.sleep(_HEAD_START_S)
            disturbed = _light_ms(pool, batches, settings.target_s)
            is_over.set()
            spinner.join()
            quiet += calm
            beside += disturbed
            ratios.append(round(quantile(disturbed, 0.99) / quantile(calm, 0.99), 3))
        counts = pool.counts
    ratio = quantile(beside, 0.99) / quantile(quiet, 0.99)
    say(f"neighbour's p99 beside a runaway: {ratio:.2f} times, {counts.stopped} stops")
    return {
        "batch_size": _BATCH_SIZE,
        "wall_time_ms": _WALL_TIME_MS,
        "alone_ms": distribution(quiet),
        "beside_ms": distribution(beside),
        "p99_ratio": round(ratio, 3),
        "p99_ratio_by_repeat": ratios,
        "stopped": counts.stopped,
    }


def _light_ms(pool: VmPool, batches: list[Batch], target_s: float) -> list[float]:
    times_ms = []
    clock = time.perf_counter
    end_s = clock() + target_s
    while not times_ms or clock() < end_s:
        start = clock()
        pool.run("light", batches[len(times_ms) % len(batches)])
        times_ms.append((clock() - start) * 1000.0)
    return times_ms


def _spin(pool: VmPool, batch: Batch, is_over: threading.Event) -> None:
    device_id, state, runs = batch[0]
    while not is_over.is_set():
        pool.run("runaway", [(device_id, dict(state), runs[:1])])


def _all_stops(settings: Settings) -> dict[str, Any]:
    found = {}
    for name, source in RUNAWAYS.items():
        machine = VirtualMachine(compiled(source))
        try:
            times_ms, again = [], 0
            for _ in range(settings.stops):
                stop_ms, asked_again = _stop(machine, settings.seed)
                times_ms.append(stop_ms)
                again += asked_again
        finally:
            machine.destroy()
        found[name] = {**distribution(times_ms), "max": round(max(times_ms), 3), "again": again}
        say(f"{name}: stopped in {statistics.median(times_ms):.2f} ms (median)")
    return found


def _stop(machine: VirtualMachine, seed: int) -> tuple[float, int]:
    # from the request to the call's return, as the caller sees it
    batch = make_batch(Random(seed), 1, 1)
    ended_s: list[float] = []
    results: list[GroupResult] = []
    is_back = threading.Event()

    def call() -> None:
        results.extend(machine.call(batch, encode_groups(batch)))
        ended_s.append(time.perf_counter())
        is_back.set()

    caller = threading.Thread(target=call)
    caller.start()
    while not machine.run_number:
        time.sleep(0.0005)
    time.sleep(_HEAD_START_S)
    asked_s = time.perf_counter()
    machine.stop_run()
    again = 0
    while not is_back.wait(_AGAIN_S):
        machine.stop_run()
        again += 1
    caller.join()
    error = results[0].runs[0].error
    if error != "RunStopped":
        raise RuntimeError(f"a runaway ended with {error!r} instead of being stopped")
    return (ended_s[0] - asked_s) * 1000.0, again
