"""Two hosts over a file that was cut by partition, beside one: what a second core brings.

The shop's job under Ray with the product's own settings, whose hosts read their own parts alone.
Time that passes counts, less that of a run that reads nothing: starts and ends. Beside each
round two plain loops say what the machine's second core is worth just then.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from pipeline_parts import shop

PARTITIONS: Final = 16
RATIO_MIN: Final = 1.4
LOOPS_MIN: Final = 1.9
_LOOP: Final = "for _ in range(40): sum(range(1_000_000))"


def measure(source: Path, rounds: int) -> dict[str, Any]:
    """Cut the file, and run the job over its parts with one host and with two."""
    settings = [f"spec.runtime.partitions={PARTITIONS}"]
    parts, cut_s = shop.partition(source, settings)
    found: dict[str, list[float]] = {"loops": [], "1": [], "2": [], "ratio": []}
    events = 0
    for _ in range(rounds):
        found["loops"].append(_loops())
        for hosts in ("1", "2"):
            ray = ("--runtime", "ray", "--hosts", hosts)
            start = shop.run_walle(parts, settings, (*ray, "--limit", "0"))
            report = shop.run_walle(parts, settings, ray)
            events = report["events"]
            found[hosts].append(events / (report["wall_s"] - start["wall_s"]))
        found["ratio"].append(found["2"][-1] / found["1"][-1])
    good = [
        r for r, loops in zip(found["ratio"], found["loops"], strict=True) if loops >= LOOPS_MIN
    ]
    middle = {name: round(statistics.median(each), 2) for name, each in found.items()}
    return {
        "events": events,
        "rounds": rounds,
        "rounds_with_two_cores": len(good),
        "cut_s": round(cut_s, 2),
        "events_per_second": {hosts: round(middle[hosts]) for hosts in ("1", "2")},
        "plain_loops": middle["loops"],
        "two_to_one": round(statistics.median(good), 2) if good else middle["ratio"],
        "date": time.strftime("%Y-%m-%d"),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Return Markdown of what ``measure`` found."""
    one, two = (found["events_per_second"][hosts] for hosts in ("1", "2"))
    speed = f"One host: {one:,} events a second, two: {two:,}, without starts"
    where = f"in {found['rounds_with_two_cores']} of {found['rounds']} rounds"
    return [
        "",
        "### Two hosts over a file in parts",
        "",
        f"{found['events']:,} events in {PARTITIONS} parts, cut in {found['cut_s']} s.",
        f"{speed}; {found['date']}.",
        f"Two hosts to one: {found['two_to_one']} (bar: {RATIO_MIN}).",
        f"Two plain loops reach {found['plain_loops']}; at least {LOOPS_MIN} {where}.",
    ]


def _loops() -> float:
    def run(count: int) -> float:
        before_s = time.perf_counter()
        working = [subprocess.Popen([sys.executable, "-S", "-c", _LOOP]) for _ in range(count)]
        for each in working:
            each.wait()
        return time.perf_counter() - before_s

    return 2 * run(1) / run(2)
