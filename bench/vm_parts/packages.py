"""How soon a task that arrives as a package gives its first result, and the package's size."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from vm_parts.contenders import ROOT
from vm_parts.measuring import Settings, quartiles, say
from vm_parts.plain import tune_gc
from walle_stream.app.programs.packages import find_task, package_task
from walle_stream.vm.package.reader import read_package
from walle_stream.vm.pool import PoolLimits, VmPool
from walle_stream.vm.results import DeviceGroup

ROUNDS_MIN: Final = 5
"""Fresh pools at least."""

_TASK: Final = ROOT / "configs/ipv.yaml"
_SETTLED_S: Final = 0.05
_WARM_S: Final = 30.0
_STEPS: Final = ("read", "compile", "install", "run")


def measure_packages(settings: Settings) -> dict[str, Any]:
    """Measure the main job's package, a fresh pool with a warm VM in every round."""
    tune_gc()
    data = package_task(find_task(_TASK))
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        path = Path(folder) / "ipv.walle"
        path.write_bytes(data)
        rounds = [_first_result_ms(path) for _ in range(max(ROUNDS_MIN, settings.repeats))]
    totals = [sum(each.values()) for each in rounds]
    first_result_ms = quartiles(totals)
    say(f"package of {len(data):,} bytes to first result: {first_result_ms['median']:.1f} ms")
    return {
        "bytes": len(data),
        "first_result_ms": first_result_ms,
        # the process's first package also loads what checks it
        "first_round_ms": round(totals[0], 3),
        "steps_ms": {
            step: round(statistics.median(each[step] for each in rounds), 3) for step in _STEPS
        },
        "rounds": [{step: round(ms, 3) for step, ms in each.items()} for each in rounds],
    }


def _first_result_ms(path: Path) -> dict[str, float]:
    # milliseconds by step
    batch = [_finished_view()]
    with VmPool({}, PoolLimits(warm_vms=1)) as pool:
        _wait_for_a_warm_vm(pool)
        times_s = [time.perf_counter()]
        package = read_package(path.read_bytes())
        times_s.append(time.perf_counter())
        program = package.program()
        times_s.append(time.perf_counter())
        pool.install(program)
        times_s.append(time.perf_counter())
        results = pool.run(program.task, batch)
        times_s.append(time.perf_counter())
    run = results[0].runs[0]
    if not (run.ok and run.emits):
        raise RuntimeError(f"the package's first run gave no feature: {run}")
    return {step: (times_s[at + 1] - times_s[at]) * 1000.0 for at, step in enumerate(_STEPS)}


def _wait_for_a_warm_vm(pool: VmPool) -> None:
    end_s = time.monotonic() + _WARM_S
    while not any(machine.task == "" for machine in pool.machines):
        if time.monotonic() > end_s:
            raise RuntimeError("the pool has no warm VM")
        time.sleep(0.01)
    time.sleep(_SETTLED_S)  # its maker is done, too


def _finished_view() -> DeviceGroup:
    # what the main job's task makes one feature of
    rows = [
        _row("page_enter", 1_000, {"item": "v1", "entry": "x", "duration_ms": 9_000}),
        _row("page_exit", 5_000, {"profile_stay_ms": 0}),
    ]
    return ("d", {}, [(1, 5_000, ("video", "v1@1", "exit", 1_000, rows[-1], rows))])


def _row(kind: str, time_ms: int, contents: dict[str, Any]) -> tuple[Any, ...]:
    return (kind, kind, time_ms, time_ms, contents)
