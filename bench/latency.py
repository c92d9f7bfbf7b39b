"""From page exit to commit at shares of the maximum rate: make bench-latency.

Each round measures how many of the simulated shop's 1.1 KB JSON Lines one host takes
in a second, then feeds it at some shares of that by a fixed schedule. Each measurement
is a process of its own with one partition; progress on stderr, tables on stdout. A round
counts where the hypervisor and others left the core alone; there are more until enough do.
One more round has busy neighbours, at the same shares of the quiet maximum: it is shown
as it is, beside the others.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from apart import ROOT, measure_apart
from console import keep, show, surroundings
from latency_parts.measuring import measure_rate
from latency_parts.quiet import is_quiet, spin
from latency_parts.tables import BAR_SHARE, bars, tables
from neighbours import busy_neighbours
from peers import simulate
from vm_parts.measuring import say

SHARES: Final = ("0.25", BAR_SHARE, "0.75")

NEIGHBOURS: Final = 2

_ROUNDS_FACTOR: Final = 3


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    if options.source:  # in its own process
        made = measure_rate(options.source, options.data_dir, options.rate, options.events)
        options.out.write_text(json.dumps(made))
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="walle-bench-"))
    try:
        source = folder / "shop.jsonl"
        size = simulate(source, options.seed, options.devices, options.sessions)
        say(f"{size['events']:,} events, {size['bytes'] / 2**20:,.0f} MiB")
        share = BAR_SHARE if BAR_SHARE in options.shares else options.shares[0]
        is_look = options.trial or options.quick
        most = options.rounds if is_look else _ROUNDS_FACTOR * options.rounds
        rounds: list[dict[str, Any]] = []
        quiet = 0
        while quiet < options.rounds and len(rounds) < most:
            rounds.append(_round(len(rounds), options, source, size["events"]))
            # what a neighbour of the machine took is none of ours
            quiet += is_quiet(rounds[-1]["rates"][share])
        maximum = median(each["fastest"]["events_per_s"] for each in rounds)
        contended = _contended(options, source, size["events"], maximum)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result: dict[str, Any] = {
        "bench": "latency",
        "trial": options.trial,
        "quick": options.quick,
        "seed": options.seed,
        "settings": {
            name: getattr(options, name) for name in ("devices", "sessions", "rounds", "seconds")
        },
        **size,
        "shares": options.shares,
        "rounds": rounds,
        "contended": contended,
        **surroundings(load),
        "wall_s": round(time.monotonic() - began, 1),
    }
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    if path is None and not options.quick and options.shares == list(SHARES):
        path = ROOT / "bench/results/latency.json"
    keep(result, path, "a quick look, or other shares")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="how many with a quiet core (5)")
    parser.add_argument("--devices", type=int, help="visitors of the shop (1,000)")
    parser.add_argument("--sessions", type=int, help="visits of each (4, some 248,000 events)")
    parser.add_argument("--seconds", type=float, help="how long events are fed at most (15)")
    parser.add_argument(
        "--shares", nargs="+", type=_share, default=list(SHARES), help="of the maximum rate"
    )
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--quick", action="store_true", help="seconds: a small shop, one round")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--json", type=Path, help="bench/results/latency.json")
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--data-dir", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--events", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.devices = options.devices or (100 if options.quick else 1_000)
    options.sessions = options.sessions or (2 if options.quick else 4)
    options.seconds = options.seconds or (3.0 if options.quick else 15.0)
    if min(options.rounds, options.devices, options.sessions, options.seconds) <= 0:
        parser.error("--rounds, --devices, --sessions and --seconds must be above 0")
    return options


def _share(text: str) -> str:
    # kept as text: it names the figures in the JSON
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is no share: give some above 0, at most 1")
    return f"{share:g}"


def _contended(
    options: argparse.Namespace, source: Path, events: int, rate: float
) -> dict[str, Any]:
    with busy_neighbours(NEIGHBOURS):
        say(f"with {NEIGHBOURS} busy neighbours")
        return {"neighbours": NEIGHBOURS, **_round(0, options, source, events, rate)}


def _round(
    number: int,
    options: argparse.Namespace,
    source: Path,
    events: int,
    rate: float | None = None,
) -> dict[str, Any]:
    controls = [spin(0.5)]
    fastest = _measured(source, 0.0, events)
    say(f"round {number + 1}: at most {fastest['events_per_s']:,.0f} events a second")
    rate = rate or fastest["events_per_s"]
    rates = {}
    turn = number % len(options.shares)
    # who comes first changes, as the machine may get slower or faster
    for share in [*options.shares[turn:], *options.shares[:turn]]:
        controls.append(spin(0.5))
        asked = rate * float(share)
        found = rates[share] = _measured(source, asked, min(events, int(asked * options.seconds)))
        say(
            f"  {float(share):.0%}: {found['events_per_s']:,.0f} events a second, p99 "
            f"{found['wall_ms']['p99']:.1f} ms wall, {found['cpu_ms']['p99']:.1f} ms CPU"
        )
    controls.append(spin(0.5))
    return {"fastest": fastest, "rates": rates, "controls": controls}


def _measured(source: Path, rate: float, events: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        arguments = ["--source", source, "--data-dir", Path(folder) / "d"]
        arguments += ["--rate", rate, "--events", events]
        return measure_apart(Path(__file__), *map(str, arguments))


if __name__ == "__main__":
    raise SystemExit(main())
