"""A fleet of very many devices: make bench-fleet.

Memory with all devices in memory and with all at rest, what waking one costs, and
what one device with half of all events does to the others. Each measurement is a
process of its own over a real pipeline; progress on stderr, tables on stdout.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from apart import ROOT, measure_apart
from console import keep, show, surroundings
from fleet_parts.hot import Load, measure_hot
from fleet_parts.residents import Residents, check_residents, measure_residents
from fleet_parts.tables import bars, tables
from vm_parts.measuring import say

WHOLE: Final = 100_000
"""Devices that the bar is about."""

PARTS: Final = ("residents", "hot")

MIXES: Final = ("alone", "even", "hot")

type Measurement = Callable[[argparse.Namespace, Path], dict[str, Any]]

MEASUREMENTS: Final[dict[str, Measurement]] = {
    "active": lambda options, path: measure_residents(_residents(options), path, is_active=True),
    "resting": lambda options, path: measure_residents(_residents(options), path, is_active=False),
    "check": lambda options, path: check_residents(_residents(options), path),
    "alone": lambda options, path: measure_hot(_load(options), path, "alone"),
    "even": lambda options, path: measure_hot(_load(options), path, "even"),
    "hot": lambda options, path: measure_hot(_load(options), path, "hot"),
}


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    if options.measure:  # in its own process
        made = MEASUREMENTS[options.measure](options, options.data_dir)
        options.out.write_text(json.dumps(made))
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    result: dict[str, Any] = {
        "bench": "fleet",
        "trial": options.trial,
        "quick": options.quick,
        "is_whole": options.devices >= WHOLE,
        "seed": options.seed,
        "settings": _residents(options)._asdict(),
    }
    folder = Path(tempfile.mkdtemp(prefix="walle-bench-"))
    try:
        if "residents" in options.parts:
            result["active"] = _measured("active", folder / "active")
            shutil.rmtree(folder / "active")
            result["resting"] = _measured("resting", folder / "resting")
            result["check"] = _measured("check", folder / "resting")
            shutil.rmtree(folder / "resting")
        if "hot" in options.parts:
            rounds = [_round(number, folder) for number in range(options.rounds)]
            result["hot"] = {"load": _load(options)._asdict(), "rounds": rounds}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result |= surroundings(load) | {"wall_s": round(time.monotonic() - began, 1)}
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    if path is None and result["is_whole"] and options.parts == list(PARTS):
        path = ROOT / "bench/results/fleet.json"
    keep(result, path, "a small fleet, or not all parts")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, help="the fleet (100,000)")
    parser.add_argument("--rounds", type=int, help="rounds with and without a hot device (5)")
    parser.add_argument("--rate", type=int, default=2_000, help="events a second beside it")
    parser.add_argument("--seconds", type=float, help="how long each of them takes (15)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="seconds: a small fleet, one round")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path, help="bench/results/fleet.json")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    parser.add_argument("--data-dir", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.devices = options.devices or (1_000 if options.quick else WHOLE)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (2.0 if options.quick else 15.0)
    if options.devices < 100:  # noqa: PLR2004 - shares of them are woken
        parser.error("--devices must be at least 100")
    return options


def _residents(options: argparse.Namespace) -> Residents:
    devices = options.devices
    return Residents(
        seed=options.seed,
        devices=devices,
        singles=min(devices // 10, 2_000),
        bulk=min(devices // 4, 10_000),
        checked=min(devices // 10, 2_000),
    )


def _load(options: argparse.Namespace) -> Load:
    return Load(
        devices=min(options.devices, 1_000), events_per_s=options.rate, seconds=options.seconds
    )


def _round(number: int, folder: Path) -> dict[str, Any]:
    # who comes first changes, as the machine may get slower or faster
    turn = number % len(MIXES)
    made = {}
    for name in [*MIXES[turn:], *MIXES[:turn]]:
        made[name] = _measured(name, folder / name)
        shutil.rmtree(folder / name)
    p99 = ", ".join(f"{name} {made[name]['others']['wall_ms']['p99']} ms" for name in MIXES)
    say(f"round {number + 1}: the others' p99: {p99}")
    return made


def _measured(name: str, data_dir: Path) -> dict[str, Any]:
    arguments = [*sys.argv[1:], "--measure", name, "--data-dir", str(data_dir)]
    return measure_apart(Path(__file__), *arguments)


if __name__ == "__main__":
    raise SystemExit(main())
