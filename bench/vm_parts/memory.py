"""Creation, memory of a VM, and what is left behind over very many runs."""

import gc
import statistics
import sys
import time
from random import Random
from typing import Any, Final

from vm_parts.measuring import Settings, quartiles, rollup_bytes, rss_bytes, say
from vm_parts.scripts import LIGHT, compiled, make_batch, program
from walle_stream.vm.pool import VmPool
from walle_stream.vm.virtual_machine import VirtualMachine

_BATCH_SIZE: Final = 100
_EVENTS: Final = 6
_SAMPLES: Final = 50
_WARM_UP_RUNS: Final = 100_000


def measure_memory(settings: Settings) -> dict[str, Any]:
    """Measure, in a fresh process."""
    result = {
        "leak": _leak(settings),
        **_creation(settings),
        "create_destroy": _cycles(settings),
    }
    say(
        f"memory: {result['leak']['growth_percent']} % growth over "
        f"{result['leak']['runs']:,} runs, {result['creation_ms']['median']} ms to create"
    )
    return result


def _creation(settings: Settings) -> dict[str, Any]:
    script = compiled(LIGHT)
    VirtualMachine(script).destroy()  # what a process does once is not a VM's
    gc.collect()
    before = rollup_bytes()
    machines, times_ms = [], []
    for _ in range(settings.vms):
        start = time.perf_counter()
        machines.append(VirtualMachine(script))
        times_ms.append((time.perf_counter() - start) * 1000.0)
    after = rollup_bytes()
    start = time.perf_counter()
    for machine in machines:
        machine.destroy()
    destroy_ms = (time.perf_counter() - start) * 1000.0 / settings.vms
    return {
        "vms": settings.vms,
        "creation_ms": quartiles(times_ms, 2),
        "destroy_ms": round(destroy_ms, 2),
        "mib_per_vm": {
            name: round((after[name] - before[name]) / settings.vms / 2**20, 3) for name in after
        },
    }


def _leak(settings: Settings) -> dict[str, Any]:
    # a new batch per call: what a VM kept of its inputs would show
    random = Random(settings.seed)
    batches = [make_batch(random, _BATCH_SIZE, _EVENTS) for _ in range(16)]
    warm_up = min(_WARM_UP_RUNS, settings.runs // 10)
    step = max(settings.runs // _SAMPLES // _BATCH_SIZE, 1) * _BATCH_SIZE
    samples = []
    with VmPool({"bench": program(LIGHT)}, 1) as pool:
        _run(pool, batches, warm_up)
        gc.collect()
        start_bytes = rss_bytes()
        start = time.perf_counter()
        done = 0
        while done < settings.runs:
            _run(pool, batches, step)
            done += step
            samples.append([done, rss_bytes()])
            if len(samples) % 10 == 0:
                say(f"leak: {done:,} runs, {samples[-1][1] / 2**20:.1f} MiB")
        wall_s = time.perf_counter() - start
        gc.collect()
        end_bytes = rss_bytes()
    return {
        "runs": done,
        "warm_up_runs": warm_up,
        "batch_size": _BATCH_SIZE,
        "start_mib": round(start_bytes / 2**20, 2),
        "end_mib": round(end_bytes / 2**20, 2),
        "growth_percent": round((end_bytes / start_bytes - 1.0) * 100.0, 3),
        "wall_s": round(wall_s, 1),
        "samples": samples,
    }


def _run(pool: VmPool, batches: list[Any], runs: int) -> None:
    for at in range(runs // _BATCH_SIZE):
        for group in pool.run("bench", batches[at % len(batches)]):
            for run in group.runs:
                if not run.ok:
                    raise RuntimeError(run.message)


def _cycles(settings: Settings) -> dict[str, Any]:
    script = compiled(LIGHT)
    warm_up = min(10, settings.cycles)
    for _ in range(warm_up):
        VirtualMachine(script).destroy()
    gc.collect()
    before = rss_bytes()
    times_ms = []
    for _ in range(settings.cycles):
        start = time.perf_counter()
        VirtualMachine(script).destroy()
        times_ms.append((time.perf_counter() - start) * 1000.0)
    gc.collect()
    leaked = (rss_bytes() - before) / settings.cycles / 2**20
    say(f"{settings.cycles} VMs made and destroyed: {leaked:.3f} MiB left by each")
    return {
        "cycles": settings.cycles,
        "leak_mib": round(leaked, 4),
        "cycle_ms": round(statistics.median(times_ms), 2),
        "python": ".".join(map(str, sys.version_info[:2])),
    }
