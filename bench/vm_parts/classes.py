"""Throughput and task time of N tasks at once, in interleaved rounds.

A round measures every contender of a class once, with one and with N callers.
The control decides whether it counts: on a shared machine, N processes that do
not run N times as fast as one say that the machine had no N cores to give.
"""

import statistics
import threading
import time
from random import Random
from typing import Any, Final

from vm_parts.contenders import Contender, normal, open_all
from vm_parts.measuring import Settings, distribution, quartiles, say
from vm_parts.plain import load, run_groups, tune_gc
from vm_parts.scripts import CLASSES, Batch, TaskClass, make_batch

_SLICE_S: Final = 0.25

type Sample = tuple[float, list[float]]
"""(runs per second, time of each call in ms)."""


def measure_classes(settings: Settings) -> dict[str, Any]:
    """Measure every class."""
    tune_gc()
    return {each.name: _measure_class(each, settings) for each in CLASSES}


def _measure_class(task: TaskClass, settings: Settings) -> dict[str, Any]:
    random = Random(settings.seed)
    batches = [
        make_batch(random, task.batch_size, task.events_per_page) for _ in range(settings.batches)
    ]
    contenders = open_all(task.source, settings.tasks)
    try:
        _verify(contenders, batches, settings.tasks)
        rounds, times = _rounds(task, contenders, batches, settings)
    finally:
        for contender in contenders.values():
            contender.close()
    counted = [each for each in rounds if each["counts"]]
    cpu_us = _cpu_us(task, batches[0])
    result: dict[str, Any] = {
        "batch_size": task.batch_size,
        "events_per_page": task.events_per_page,
        "cpu_us_per_run": cpu_us,
        "in_class": task.cpu_us[0] <= cpu_us <= task.cpu_us[1],
        "rounds_counted": len(counted),
        "same_features": True,
        "throughput": {
            key: quartiles([each["runs_per_s"][key] for each in counted], 1)
            for key in rounds[0]["runs_per_s"]
        },
        "ratios": {
            key: quartiles([each["ratios"][key] for each in counted]) for key in rounds[0]["ratios"]
        },
        "task_time_ms": {name: distribution(values) for name, values in times.items() if values},
        "rounds": rounds,
    }
    result["figure"] = _figure(task, result["task_time_ms"])
    return result


def _figure(task: TaskClass, times: dict[str, Any]) -> dict[str, Any]:
    # performance = 1 / time, as in the paper: its change from the GIL to VMs
    figure: dict[str, Any] = {"paper_percent": task.paper_percent}
    for key in ("mean", "p50"):
        if "vms" in times:
            ratio = times["threads"][key] / times["vms"][key]
            figure[f"improvement_{key}_percent"] = round((ratio - 1.0) * 100.0, 1)
    return figure


def _cpu_us(task: TaskClass, batch: Batch) -> float:
    # of the script as a plain function, on one core
    run = load(task.source)
    values = []
    for _ in range(5):
        start = time.process_time()
        run_groups(run, batch)
        values.append((time.process_time() - start) * 1e6 / task.batch_size)
    return round(statistics.median(values), 1)


def _verify(contenders: dict[str, Contender], batches: list[Batch], callers: int) -> None:
    for batch in batches:
        wanted = None
        for name, contender in contenders.items():
            for slot in range(callers):
                got = normal(contender.run(slot, batch))
                if wanted is None:
                    wanted = got
                elif got != wanted:
                    raise RuntimeError(f"{name} makes other features than the plain function")


def _rounds(
    task: TaskClass, contenders: dict[str, Contender], batches: list[Batch], settings: Settings
) -> tuple[list[dict[str, Any]], dict[str, list[float]]]:
    order = [(name, callers) for name in contenders for callers in (1, settings.tasks)]
    # the control's many, then the VMs' many: what is compared is measured side by side
    order[-2:] = reversed(order[-2:])
    rounds: list[dict[str, Any]] = []
    times: dict[str, list[float]] = {name: [] for name in contenders}
    count = 0
    while count < settings.rounds and len(rounds) < settings.max_rounds:
        samples = _sliced(order, contenders, batches, settings.target_s)
        found = _one_round(samples, settings)
        rounds.append(found)
        if found["counts"]:
            count += 1
            for name in contenders:
                times[name] += samples[name, settings.tasks][1]
        say(
            f"{task.name}: round {len(rounds)}, control {found['control']:.2f} "
            f"({'counts' if found['counts'] else 'does not count'}; {count} of "
            f"{settings.rounds}), VMs/control {found['ratios']['vms/processes']:.2f}, "
            f"VMs/GIL {found['ratios']['vms/threads']:.2f}"
        )
    return rounds, times


def _sliced(
    order: list[tuple[str, int]],
    contenders: dict[str, Contender],
    batches: list[Batch],
    target_s: float,
) -> dict[tuple[str, int], Sample]:
    # in short slices, to and fro: a machine whose speed drifts by the second slows all alike
    slices = max(1, round(target_s / _SLICE_S))
    found: dict[tuple[str, int], list[Sample]] = {key: [] for key in order}
    for _ in range(slices):
        for name, callers in order:
            sample = measure(contenders[name], callers, batches, target_s / slices)
            found[name, callers].append(sample)
        order.reverse()
    return {
        key: (
            statistics.fmean(speed for speed, _ in samples),
            [value for _, times in samples for value in times],
        )
        for key, samples in found.items()
    }


def _one_round(samples: dict[tuple[str, int], Sample], settings: Settings) -> dict[str, Any]:
    many = settings.tasks
    speed = {key: sample[0] for key, sample in samples.items()}
    control = speed["processes", many] / speed["processes", 1]
    ratios = {
        f"vms/{name}": round(speed["vms", many] / speed[name, many], 3)
        for name, callers in samples
        if callers == many and name != "vms"
    }
    ratios["vms/one vm"] = round(speed["vms", many] / speed["vms", 1], 3)
    return {
        "control": round(control, 3),
        "counts": control >= settings.control_min,
        "ratios": ratios,
        "runs_per_s": {f"{name} {callers}": round(v, 1) for (name, callers), v in speed.items()},
        "task_time_ms": {
            name: distribution(times)
            for (name, callers), (_, times) in samples.items()
            if callers == many
        },
    }


def measure(contender: Contender, callers: int, batches: list[Batch], target_s: float) -> Sample:
    """Let some threads call a contender for a while.

    Args:
        contender: Who runs.
        callers: Threads, each with one call in flight.
        batches: What they hand over, in turn.
        target_s: How long, but not less than a call each. Nobody stops before all
            have had enough, so that every call had its neighbours.
    """
    barrier = threading.Barrier(callers)
    still_busy = [True] * callers
    speeds = [0.0] * callers
    times: list[list[float]] = [[] for _ in range(callers)]
    failures: list[BaseException] = []

    def call(slot: int) -> None:
        mine, clock, run_count, at = times[slot], time.perf_counter, 0, slot
        try:
            contender.run(slot, batches[at % len(batches)])  # warm, not measured
            barrier.wait()
            start = now = clock()
            while any(still_busy):
                batch = batches[at % len(batches)]
                at += 1
                contender.run(slot, batch)
                before, now = now, clock()
                mine.append((now - before) * 1000.0)
                run_count += sum(len(runs) for _, _, runs in batch)
                if now - start >= target_s:
                    still_busy[slot] = False
            speeds[slot] = run_count / (now - start)
        except BaseException as error:  # noqa: BLE001 - raised again below
            still_busy[:] = [False] * callers
            barrier.abort()
            failures.append(error)

    threads = [threading.Thread(target=call, args=(slot,)) for slot in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(speeds), [value for mine in times for value in mine]
