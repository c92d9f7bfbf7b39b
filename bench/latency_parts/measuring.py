"""The shop at one rate, and what its exits waited for.

Two clocks between the same two moments, the arrival of an exit's event by the
schedule and the return of the commit that has its feature:

- The **wall** clock: the time that a user would wait. It includes lines that wait for their read, a
  batch that waits for its commit, the order bound, and all other load of the machine. The bound
  ``outOfOrder`` is 2 s of the shop's time, which passes in milliseconds here; a live shop would
  wait 2 s.
- The process's **CPU** clock: how much all threads of this process worked meanwhile.
  Neighbours and idle waiting are not in it, so it says what a quiet machine would
  need at least. It is no latency: a wait for more events costs nothing on it, and a
  second core that works beside counts double. A very busy machine also affects it: lines pile up
  while other processes have the cores, and a line's time includes the lines ahead of it in the
  queue.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pipeline_parts.shop import DEFINITION, overrides
from vm_parts.measuring import quantile

from latency_parts.commits import Commit, Commits
from latency_parts.paced import CONNECTOR, Schedule
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun
from walle_stream.app.options import RunOptions
from walle_stream.app.report import RunReport

_WARM_UP_SHARE: Final = 0.2


class _Page(msgspec.Struct):
    device_id: str
    page_instance: str
    cause: str


class _Waited(NamedTuple):
    wall_ms: list[float]
    cpu_ms: list[float]


def measure_rate(source: Path, data_dir: Path, events_per_s: float, events: int) -> dict[str, Any]:
    """Run the shop in this process, which is not to be used for anything else.

    The first fifth is not counted.

    Args:
        source: JSON Lines of a shop.
        data_dir: A new one.
        events_per_s: How many arrive; 0 for as many as are taken.
        events: How many of the file.

    Raises:
        RuntimeError: No feature of an exit was committed.
    """
    schedule = CONNECTOR.schedule = Schedule(events_per_s)
    given = {"connector": "latency_parts.paced:CONNECTOR", "path": str(source)}
    assembly = Assembly.load(DEFINITION, overrides(given))
    commits = Commits()
    report = LocalRun(assembly, RunOptions(data_dir, hosts=1, limit=events)).run()
    return {**_figures(schedule, commits.made, report), "cores": schedule.cores}


def _figures(schedule: Schedule, commits: list[Commit], report: RunReport) -> dict[str, Any]:
    total = report.run_events
    counted = [each for each in commits if each.events >= total * _WARM_UP_SHARE]
    last = counted[-1]
    # beside neighbours a short run may have one large commit: then its start is counted, too
    since_ms, before = schedule.start_ms, 0
    if len(counted) > 1:
        since_ms, before = counted[0].at_ms, counted[0].events
    waited = _waited(schedule, counted, since_ms)
    if not waited.wall_ms:
        raise RuntimeError(f"no exit was committed in {total} events: give more")
    rate = schedule.events_per_s
    last_arrival_ms = schedule.arrival_ms(total - 1) if rate else last.at_ms
    by_partition: dict[int, list[float]] = {}
    for each in counted:
        if each.at_ms <= last_arrival_ms:  # then no events flow
            by_partition.setdefault(each.partition, []).append(each.at_ms)
    gaps = [b - a for times in by_partition.values() for a, b in pairwise(times)]
    return {
        "events": total,
        "features": report.counters.features,
        "asked_events_per_s": round(rate, 1),
        "events_per_s": round((last.events - before) * 1e3 / (last.at_ms - since_ms), 1),
        "wall_ms": _shown(waited.wall_ms),
        "cpu_ms": _shown(waited.cpu_ms),
        "commit_gap_ms": _shown(gaps or [0.0]),
        "backlog_ms": round(max(last.at_ms - last_arrival_ms, 0.0), 3),
        # from the batch that let the page end, in buckets of a tenth, the warm-up included
        "run_reports_ms": msgspec.to_builtins(report.exit_to_commit_ms),
    }


def _waited(schedule: Schedule, commits: Sequence[Commit], since_ms: float) -> _Waited:
    clocks = schedule.clocks + [(each.at_ms, each.at_cpu_ms) for each in commits]
    clocks.sort()
    walls = [wall for wall, _ in clocks]
    found = _Waited([], [])
    decode = msgspec.json.Decoder(_Page).decode
    for commit in commits:
        for page in map(decode, commit.features):
            arrived_ms = schedule.exits.get((page.device_id, page.page_instance))
            # a page that timed out has no exit; what came before has warmed up
            if page.cause == "exit" and arrived_ms is not None and arrived_ms >= since_ms:
                found.wall_ms.append(commit.at_ms - arrived_ms)
                arrived_cpu_ms = _cpu_at(arrived_ms, walls, clocks)
                found.cpu_ms.append(commit.at_cpu_ms - arrived_cpu_ms)
    return found


def _cpu_at(wall_ms: float, walls: list[float], clocks: list[tuple[float, float]]) -> float:
    # between two looks, which are a few milliseconds apart, the process worked evenly
    place = bisect_left(walls, wall_ms)
    if place in {0, len(walls)}:
        return clocks[min(place, len(walls) - 1)][1]
    (before, cpu_before), (after, cpu_after) = clocks[place - 1], clocks[place]
    return cpu_before + (cpu_after - cpu_before) * (wall_ms - before) / (after - before)


def _shown(values: Sequence[float]) -> dict[str, float]:
    shares = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    found = {name: round(quantile(values, share), 3) for name, share in shares.items()}
    return {"count": len(values), **found, "max": round(max(values), 3)}
