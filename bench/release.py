"""The release service under load: make bench-release.

The real service over its store (a uvicorn worker, pinned to a core) answers many simulated
devices over loopback keep-alive HTTP, and an operator's browser. Each kind of request has a line:
as many as it can; checks also at 70 % and at twice of that. Devices prove who they are by tokens;
the floor is uvicorn with an application that answers 204, in the same rounds, which are quiet and
contended in turns. Beside that the decision alone with 1 to 1,000 releases; memory with a million
known devices; reports with up to a million known devices, on both databases. Progress on stderr,
tables on stdout.
"""

import argparse
import json
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from apart import ROOT, measure_apart
from console import keep, show, surroundings
from latency_parts.quiet import spin
from release_parts.deciding import measure_decisions, measure_memory
from release_parts.fleet import mixed_fleet
from release_parts.loading import measure_loads
from release_parts.reporting import measure_reports
from release_parts.tables import bars, tables
from vm_parts.measuring import say

PARTS: Final = ("load", "decisions", "memory", "reports")
RELEASES: Final = (1, 10, 100, 1_000)
DEVICES: Final = 1_000_000


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    if options.measure:  # in its own process
        task = json.loads(options.task)
        made = _MEASURED[options.measure](**task)
        options.out.write_text(json.dumps(made))
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    control_s = 0.05 if options.quick else 1.0
    controls = [spin(control_s)]
    loads: dict[str, Any] = {}
    if "load" in options.parts:
        fleet = mixed_fleet(RELEASES[-1], options.fleet, options.seed)
        loads = measure_loads(fleet, options.rounds, options.seconds, options.seed)
    result: dict[str, Any] = {
        "bench": "release",
        "trial": options.trial,
        "quick": options.quick,
        "seed": options.seed,
        "settings": {name: getattr(options, name) for name in ("rounds", "seconds", "fleet")},
        "rounds": loads.get("quiet", []),
        "contended": loads.get("contended", []),
        "decisions": _decisions(options) if "decisions" in options.parts else [],
        "memory": {},
        "reports": _reports(options) if "reports" in options.parts else [],
    }
    if "memory" in options.parts:
        result["memory"] = _apart("memory", devices=options.devices)
        say(f"memory: {result['memory']['mb']} MB of {options.devices:,} devices")
    controls.append(spin(control_s))
    result |= surroundings(load) | {"controls": controls}
    for name in ("uvicorn", "starlette", "httptools", "uvloop"):
        result["versions"][name] = version(name)
    result["wall_s"] = round(time.monotonic() - began, 1)
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    if path is None and options.parts == list(PARTS) and not options.quick:
        path = ROOT / "bench/results/release.json"
    keep(result, path, "a quick look, or not all parts")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="of each load (5)")
    parser.add_argument("--seconds", type=float, help="of a load in a round (1.5)")
    parser.add_argument("--fleet", type=int, default=20_000, help="simulated devices (20,000)")
    parser.add_argument("--devices", type=int, help="that are known, at most (1,000,000)")
    parser.add_argument("--decisions", type=int, help="of each number of releases (20,000)")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="seconds: one round")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--json", type=Path, help="bench/results/release.json")
    parser.add_argument(
        "--measure", choices=("memory", "decisions", "reports"), help=argparse.SUPPRESS
    )
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or 1.5
    options.decisions = options.decisions or (2_000 if options.quick else 20_000)
    options.devices = options.devices or (100_000 if options.quick else DEVICES)
    return options


def _apart(name: str, **task: Any) -> dict[str, Any]:
    return measure_apart(Path(__file__), "--measure", name, "--task", json.dumps(task))


def _decisions(options: argparse.Namespace) -> list[dict[str, Any]]:
    made = _apart("decisions", devices=options.decisions, seed=options.seed)["made"]
    for each in made:
        say(f"decision, {each['releases']} releases, {each['kind']}: {each['us']['p50']} us")
    return list(made)


def _reports(options: argparse.Namespace) -> list[dict[str, Any]]:
    few = 50 if options.quick else 500
    found = []
    for store in ("sqlite", "postgresql"):
        for known in (options.devices // 100, options.devices // 10, options.devices):
            task = {"devices": known, "singles": few, "many": few // 5, "seed": options.seed}
            found.append(_apart("reports", store=store, **task))
            say(
                f"a report with {known:,} known devices, {store}: {found[-1]['one_cpu_ms']} ms of "
                f"CPU; {found[-1]['per_core_s']:,.0f} per second and core"
            )
    return found


def _measure_decisions(devices: int, seed: int) -> dict[str, Any]:
    kinds = [*(("mixed", each) for each in RELEASES), ("one app", RELEASES[-1])]
    return {"made": [measure_decisions(each, kind, devices, seed) for kind, each in kinds]}


_MEASURED: Final = {
    "memory": measure_memory,
    "decisions": _measure_decisions,
    "reports": measure_reports,
}


if __name__ == "__main__":
    raise SystemExit(main())
