"""The release service under load: make bench-release.

The real service (a uvicorn worker, pinned to a core) answers many simulated devices over
loopback keep-alive HTTP: as many checks as it can, 70 % and twice of that; the decision alone
with 1 to 1,000 releases; memory with a million known devices; reports with up to a million known
devices, on both databases. In the same rounds a second service has each device prove who it is by
a token, and the floor is uvicorn with an application that answers 204. Progress on stderr, tables
on stdout.
"""

import argparse
import json
import os
import tempfile
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from apart import ROOT, measure_apart
from console import keep, show, surroundings
from latency_parts.quiet import spin
from release_parts.deciding import measure_decisions, measure_memory
from release_parts.fleet import mixed_fleet
from release_parts.load import Rate, run_load
from release_parts.proving import set_up_tokens, with_token
from release_parts.reporting import measure_reports
from release_parts.serving import Served, floor, service
from release_parts.tables import bars, tables
from vm_parts.measuring import say

from walle_deploy.model.profile import encode_profile, with_versions
from walle_deploy.policy.facts import Sources
from walle_deploy.policy.index import ReleaseIndex
from walle_deploy.service.ports import write_table

PARTS: Final = ("load", "decisions", "memory", "reports")
RELEASES: Final = (1, 10, 100, 1_000)
DEVICES: Final = 1_000_000

_CLOSED: Final = 64
"""Connections that keep a worker busy without a queue of hundreds."""
_OPEN: Final = 1_000
"""More than ``limits.pending``, so that refusals can begin."""
_MOST: Final = Rate(0)
"""As many as it can."""


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
    result: dict[str, Any] = {
        "bench": "release",
        "trial": options.trial,
        "quick": options.quick,
        "seed": options.seed,
        "settings": {name: getattr(options, name) for name in ("rounds", "seconds", "fleet")},
        "rounds": _rounds(options) if "load" in options.parts else [],
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
    parser.add_argument("--seconds", type=float, help="of a load in a round (10)")
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
    options.seconds = options.seconds or (1.5 if options.quick else 10.0)
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
        for known in (0, options.devices // 10, options.devices):
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


def _rounds(options: argparse.Namespace) -> list[dict[str, Any]]:
    fleet = mixed_fleet(RELEASES[-1], options.fleet, options.seed)
    index = ReleaseIndex(fleet.table, Sources())
    requests = []
    for profile in fleet.profiles:
        # nearly all checks are of devices that have what they are to have
        offers = {each.task: each.version for each in index.decide(profile)}
        header = encode_profile(with_versions(profile, profile.tasks | offers))
        head = f"GET /v1/check HTTP/1.1\r\nhost: localhost\r\nwalle-profile: {header}\r\n\r\n"
        requests.append(head.encode())
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        table = Path(folder) / "table.json"
        write_table(table, fleet.table)
        file, key = set_up_tokens(Path(folder))
        proven = [
            with_token(request, key, profile.device)
            for request, profile in zip(requests, fleet.profiles, strict=True)
        ]
        os.sched_setaffinity(0, set(cores[1:]) or set(cores))
        try:
            with (
                service(cores[0], "--store", str(table)) as served,
                service(cores[0], str(file), "--store", str(table)) as asking,
                floor(cores[0]) as empty,
            ):
                # classes are made and the interpreter has specialised its loops
                for each in (served, empty):
                    run_load(each.address, requests, _CLOSED, options.seconds, Rate(0))
                _ask_each(asking, proven)
                made = []
                for _ in range(options.rounds):
                    found = _round(options, requests, served, empty)
                    made.append(found | {"tokens": _load(options, proven, asking)})
                return made
        finally:
            os.sched_setaffinity(0, cores)


def _round(
    options: argparse.Namespace, requests: list[bytes], served: Served, empty: Served
) -> dict[str, Any]:
    load = partial(_load, options, requests)
    most = load(served)
    made = {
        "most": most,
        "floor": load(empty),
        "steady": load(served, Rate(most["per_s"] * 0.7), _OPEN),
        "past": load(served, Rate(most["per_s"] * 2.0, is_dropped=True), _OPEN),
    }
    say(
        f"{most['per_core_s']:,.0f} checks per second and core, floor "
        f"{made['floor']['per_core_s']:,.0f}; p99 at 70 % "
        f"{made['steady']['by_status']['204']['ms']['p99']:.2f} ms"
    )
    return made


def _load(
    options: argparse.Namespace,
    requests: list[bytes],
    target: Served,
    rate: Rate = _MOST,
    connections: int = _CLOSED,
) -> dict[str, Any]:
    cpu = target.cpu_s()
    found = run_load(target.address, requests, connections, options.seconds, rate, options.seed)
    spent = target.cpu_s() - cpu
    answered = sum(each["count"] for each in found["by_status"].values())
    return found | {
        "cpu_s": round(spent, 3),
        "per_core_s": round(answered / spent, 1),
        "rss_mb": round(target.rss_mb(), 1),
    }


def _ask_each(target: Served, requests: list[bytes]) -> None:
    """Have every token verified: what is measured is a token that was seen before."""
    asked = 0
    while asked < len(requests):
        found = run_load(target.address, requests[asked:], _CLOSED, 0.2, _MOST)
        asked += sum(each["count"] for each in found["by_status"].values())


_MEASURED: Final = {
    "memory": measure_memory,
    "decisions": _measure_decisions,
    "reports": measure_reports,
}


if __name__ == "__main__":
    raise SystemExit(main())
