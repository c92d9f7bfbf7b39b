"""What a busy machine and many partitions cost: CPU of the same job, as ratios.

The shop's job with the product's own settings: 16 partitions, a latency target of 500 ms.
Time that passes is the neighbours', so CPU-seconds of the whole process are compared.
"""

import statistics
import time
from pathlib import Path
from typing import Any, Final

from neighbours import busy_neighbours

from pipeline_parts import shop

NEIGHBOURS: Final = (2, 12)
BUSY_MAX: Final = 1.5
PARTITIONS: Final = 16
PARTITIONS_MAX: Final = 1.1


def measure(source: Path, rounds: int) -> dict[str, Any]:
    """Run the job beside neighbours, and with one partition; the rounds take turns."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ("0", "one partition")}
    for number in range(rounds):
        # one behind the other, as the machine's speed drifts; who comes first changes
        pair = [("0", PARTITIONS), ("one partition", 1)]
        for name, partitions in pair if number % 2 else reversed(pair):
            runs[name].append(_run(source, partitions))
        for count in NEIGHBOURS:
            with busy_neighbours(count):
                runs.setdefault(f"{count}", []).append(_run(source, PARTITIONS))
    found = {name: _middle(each) for name, each in runs.items()}
    quiet_s = found["0"]["cpu_s"]
    return {
        "events": runs["0"][0]["events"],
        "rounds": rounds,
        "date": time.strftime("%Y-%m-%d"),
        "runs": found,
        "busy_to_quiet": {
            f"{count}": round(found[f"{count}"]["cpu_s"] / quiet_s, 3) for count in NEIGHBOURS
        },
        "partitions_to_one": round(
            statistics.median(
                many["cpu_s"] / one["cpu_s"]
                for many, one in zip(runs["0"], runs["one partition"], strict=True)
            ),
            3,
        ),
    }


def lines(found: dict[str, Any]) -> list[str]:
    """Return a Markdown table of what ``measure`` found."""
    title = {
        f"{count}": f"{PARTITIONS} partitions, {count or 'no'} neighbours"
        for count in (0, *NEIGHBOURS)
    }
    ratios = ", ".join(f"{each} ({count})" for count, each in found["busy_to_quiet"].items())
    return [
        "",
        "### On a busy machine, and with many partitions",
        "",
        "| | CPU-seconds | commits | exit to commit p99 |",
        "|---|---|---|---|",
        *(
            f"| {title.get(name, name)} | {each['cpu_s']} | {each['commits']:g} "
            f"| {each['exit_to_commit_p99_ms']} ms |"
            for name, each in found["runs"].items()
        ),
        "",
        f"{found['events']:,} events, median of {found['rounds']}, {found['date']}.",
        f"CPU beside neighbours to CPU without: {ratios} (bar: {BUSY_MAX}).",
        f"{PARTITIONS} partitions to one: {found['partitions_to_one']} (bar: {PARTITIONS_MAX}).",
    ]


def _run(source: Path, partitions: int) -> dict[str, Any]:
    report = shop.run_walle(source, [f"spec.runtime.partitions={partitions}"])
    return {
        "events": report["events"],
        "cpu_s": report["events"] / report["events_per_cpu_second"],
        "commits": report["commits"],
        "exit_to_commit_p99_ms": report["exit_to_commit_ms"]["p99"],
    }


def _middle(runs: list[dict[str, Any]]) -> dict[str, float]:
    return {
        name: round(statistics.median(each[name] for each in runs), 3)
        for name in ("cpu_s", "commits", "exit_to_commit_p99_ms")
    }
