"""Installing versions into a running host under load: make bench-install.

Each round finds the number of events of the simulated shop that one host takes in a second. Then
it feeds half of that rate twice: once alone, and once while versions are installed, in turns on
one device and on all. Every event must be handled in both, and both must give the same features,
which have all events of their pages in them. Beside it: what a device without hot installation
does, a restart of the process with the new version.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from apart import ROOT, measure_apart
from console import keep, show, surroundings
from install_parts.measuring import make_packages, measure_installs
from install_parts.tables import bars, tables
from peers import simulate
from pipeline_parts.shop import DEFINITION
from vm_parts.measuring import say

SHARE: Final = 0.5
_PACKAGES: Final = 8


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    if options.out:  # in its own process
        _measure(options)
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="walle-bench-"))
    try:
        source = folder / "shop.jsonl"
        size = simulate(source, options.seed, options.devices, options.sessions)
        say(f"{size['events']:,} events, {size['bytes'] / 2**20:,.0f} MiB")
        rounds = [_round(n, options, source, size["events"]) for n in range(options.rounds)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result: dict[str, Any] = {
        "bench": "install",
        "quick": options.quick,
        "seed": options.seed,
        "settings": {
            name: getattr(options, name) for name in ("devices", "sessions", "rounds", "seconds")
        },
        **size,
        "rounds": rounds,
        **surroundings(load),
        "wall_s": round(time.monotonic() - began, 1),
    }
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    if path is None and not options.quick:
        path = ROOT / "bench/results/install.json"
    keep(result, path, "a quick look")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="(5)")
    parser.add_argument("--devices", type=int, help="visitors of the shop (1,000)")
    parser.add_argument("--sessions", type=int, help="visits of each (8)")
    parser.add_argument("--seconds", type=float, help="how long events are fed at most (15)")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--quick", action="store_true", help="seconds: a small shop, one round")
    parser.add_argument("--json", type=Path, help="bench/results/install.json")
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--events", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--installs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.devices = options.devices or (100 if options.quick else 1_000)
    options.sessions = options.sessions or (5 if options.quick else 8)
    options.seconds = options.seconds or (2.0 if options.quick else 15.0)
    if min(options.rounds, options.devices, options.sessions, options.seconds) <= 0:
        parser.error("--rounds, --devices, --sessions and --seconds must be above 0")
    return options


def _measure(options: argparse.Namespace) -> None:
    devices = [f"device-{number:07d}" for number in range(options.devices)]
    packages = make_packages(_PACKAGES) if options.installs else []
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        data_dir = Path(folder) / "d"
        made = measure_installs(
            options.source, data_dir, options.rate, options.events, devices, packages
        )
    options.out.write_text(json.dumps(made))


def _round(number: int, options: argparse.Namespace, source: Path, events: int) -> dict[str, Any]:
    fastest = _apart(options, source, 0.0, events)
    rate = fastest["events_per_s"] * SHARE
    taken = min(events, int(rate * options.seconds))
    alone = _apart(options, source, rate, taken)
    found = _apart(options, source, rate, taken, "--installs")
    restarts = [_restart() for _ in range(1 if options.quick else 3)]
    differs = alone.pop("features_digests") != found.pop("features_digests")
    del fastest["features_digests"]
    one, many = (statistics.median(found["install_ms"][kind]) for kind in ("one", "all"))
    say(
        f"round {number + 1}: {rate:,.0f} events a second; installed on one device in "
        f"{one:.1f} ms, on {options.devices:,} in {many:.1f} ms (median); a restart takes "
        f"{statistics.median(restarts):,.0f} ms"
    )
    return {
        "fastest": fastest,
        "alone": alone,
        "installing": found,
        "is_any_feature_other": differs,
        "events_not_handled": 2 * taken - alone["handled"] - found["handled"],
        "restart_ms": restarts,
    }


def _apart(
    options: argparse.Namespace, source: Path, rate: float, events: int, *more: str
) -> dict[str, Any]:
    given = ["--source", source, "--devices", options.devices, "--rate", rate, "--events", events]
    return measure_apart(Path(__file__), *map(str, given), *more)


def _restart() -> float:
    # the process of a device that takes up its work again, to its first commit
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        command = [sys.executable, "-m", "walle_stream.cli", "run", str(DEFINITION), "--json"]
        command += ["--data-dir", f"{folder}/d", "--limit", "1"]
        command += ["--set", "spec.runtime.partitions=1"]
        times = []
        for _ in range(2):  # the second one finds what the first has left
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times.append((time.perf_counter() - began) * 1e3)
        return round(times[-1], 1)


if __name__ == "__main__":
    sys.exit(main())
