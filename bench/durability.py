"""What surviving a power cut costs: make bench-durability.

The simulated shop runs over 16 partitions, with ``spec.state.sync`` at false, interval and true in
turns. False and true run once more on a slow disk, on which each flush takes 5 ms longer
(``WALLE_SYNC_MS``). Each run is a process of its own; CPU is of all its threads. Two bars: true
costs at most 1.6 times the CPU of false, and on the slow disk makes at least half of its events
a second.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from console import keep, show, surroundings
from peers import ROOT, simulate
from vm_parts.measuring import say
from vm_parts.tables import Table

SLOW_MS: Final = 5
CPU_BAR: Final = 1.6
RATE_BAR: Final = 0.5
VARIANTS: Final = (
    ("false", 0),
    ("interval", 0),
    ("true", 0),
    ("interval", SLOW_MS),
    ("true", SLOW_MS),
)
_PARTITIONS: Final = 16


def run(source: Path, sync: str, slow_ms: int) -> dict[str, float]:
    """Run the job in a fresh data directory, return what it took."""
    folder = Path(tempfile.mkdtemp(prefix="walle-bench-"))
    paths = os.pathsep.join(str(ROOT / name) for name in ("", "connectors", "deploy"))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "0"}
    if slow_ms:
        environment["WALLE_SYNC_MS"] = str(slow_ms)
    command = [sys.executable, "-m", "walle_stream.cli", "run", str(ROOT / "configs/shop.yaml")]
    for setting in (
        f"spec.source={{connector: events, path: {source}}}",
        f"spec.runtime.partitions={_PARTITIONS}",
        f"spec.state.sync={sync}",
    ):
        command += ["--set", setting]
    try:
        done = subprocess.run(
            [*command, "--data-dir", str(folder / "d"), "--json"],
            check=True,
            capture_output=True,
            text=True,
            env=environment,
        )
    finally:
        shutil.rmtree(folder)
    report = json.loads(done.stdout.splitlines()[-1])
    return {
        "cpu_s": report["cpu_s"],
        "wall_s": report["wall_s"],
        "events_per_s": report["run_events"] / report["wall_s"],
        "commits": report["commits"],
    }


def measure(source: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Run all variants in turns, return the medians by name."""
    found: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        for sync, slow_ms in VARIANTS:
            name = f"{sync}, {slow_ms} ms a flush" if slow_ms else sync
            say(f"round {number + 1} of {rounds}: {name}")
            found.setdefault(name, []).append(run(source, sync, slow_ms))
    return {
        name: {key: statistics.median(each[key] for each in runs) for key in runs[0]}
        for name, runs in found.items()
    }


def bars(medians: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return what the two bars are about."""
    slow = medians[f"true, {SLOW_MS} ms a flush"]
    return {
        "cpu_of_true_to_false": medians["true"]["cpu_s"] / medians["false"]["cpu_s"],
        "rate_of_slow_true_to_false": slow["events_per_s"] / medians["false"]["events_per_s"],
    }


def table(medians: dict[str, dict[str, float]], found: dict[str, float]) -> Table:
    """Return what a person sees."""
    rows = [
        (
            name,
            f"{each['cpu_s']:.2f}",
            f"{each['cpu_s'] / medians['false']['cpu_s']:.2f}",
            f"{each['events_per_s']:,.0f}",
            f"{each['commits']:,.0f}",
        )
        for name, each in medians.items()
    ]
    return Table(
        "spec.state.sync, 16 partitions, one host",
        ("", "CPU s", "to false", "events/s", "commits"),
        rows,
        f"true to false: {found['cpu_of_true_to_false']:.2f} of at most {CPU_BAR} in CPU; on the "
        f"slow disk {found['rate_of_slow_true_to_false']:.2f} of at least {RATE_BAR} in events/s",
    )


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--devices", type=int, default=1_000)
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/durability.json")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        source = Path(folder) / "shop.jsonl"
        made = simulate(source, 1, options.devices, options.sessions)
        medians = measure(source, options.rounds)
    found = bars(medians)
    show([table(medians, found)])
    result: dict[str, Any] = {
        "seed": 1,
        **surroundings(load_before),
        "events": made["events"],
        "rounds": options.rounds,
        "medians": medians,
        **found,
    }
    keep(result, options.json, "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
