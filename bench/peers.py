"""The shop's job against other streaming libraries and a plain loop: make bench-peers.

``walle simulate`` writes the events once; every contender reads the same JSON
Lines with msgspec into the same ``Event``, builds the same pages and makes the same
features, which is checked. Rounds take turns; what counts is the CPU of all of a
contender's threads and processes. Progress on stderr, the table on stdout.
``--kafka`` is the other half, over a real broker: see ``peers_kafka``.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from console import keep, show, surroundings
from peers_parts.contenders import CONTENDERS, Contender
from peers_parts.contest import (
    CHECKED_DEVICES,
    Ready,
    Rounds,
    add_other_pythons,
    check,
    summed_up,
    take_turns,
)
from peers_parts.environments import Environment, Missing, find_environment
from peers_parts.options import parse, peers_parser
from peers_parts.running import ROOT, run_contender
from peers_parts.tables import tables
from vm_parts.measuring import quartiles, say

NAMES: Final = [contender.name for contender in CONTENDERS]


def main() -> int:
    """Check, measure, print the table, write the JSON."""
    if "--kafka" in sys.argv[1:]:
        import peers_kafka  # noqa: PLC0415 - the other half needs an extra

        return peers_kafka.main()
    options = _options()
    began = time.monotonic()
    load = os.getloadavg()[0]
    ready, missing = _contenders(options)
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        small, one = Path(folder) / "small.jsonl", Path(folder) / "one.jsonl"
        simulate(small, options.seed, CHECKED_DEVICES, 2)
        with small.open("rb") as file:
            one.write_bytes(file.readline())
        lines = small.read_bytes().splitlines()
        check(ready, lines, 16, lambda *who: run_contender(*who, small))
        source = Path(folder) / "shop.jsonl"
        size = simulate(source, options.seed, options.devices, options.sessions)
        say(f"{size['events']:,} events, {size['bytes'] / 2**20:,.0f} MiB")
        rounds, made = take_turns(
            ready,
            options.rounds,
            start=lambda *who: run_contender(*who, one),
            job=lambda *who: run_contender(*who, source),
        )
    result = {
        "bench": "peers",
        "trial": options.trial,
        "quick": options.quick,
        "seed": options.seed,
        "settings": {name: getattr(options, name) for name in ("devices", "sessions", "rounds")},
        **size,
        "features": made.features,
        "contenders": [_summary(each, rounds, size["events"]) for each in ready.values()],
        "missing": missing,
        **surroundings(load),
        "wall_s": round(time.monotonic() - began, 1),
    }
    show(tables(result))
    path = options.json
    if path is None and not options.quick and options.contenders == NAMES:
        path = ROOT / "bench/results/peers.json"
    keep(result, path, "a quick look, or not all contenders")
    return 0


def _options() -> argparse.Namespace:
    parser = peers_parser(NAMES, "bench/results/peers.json", description=__doc__)
    options = parse(parser)
    if "walle" not in options.contenders:
        parser.error("--contenders must name walle: its features are what the others must make")
    return options


def simulate(
    out: Path, seed: int, devices: int, sessions: int, form: str = "jsonl"
) -> dict[str, int]:
    """Write the events of a shop, return how many ``events`` and ``bytes``."""
    command = [sys.executable, "-m", "walle_stream.cli", "simulate", str(out), "--json"]
    command += ["--format", form]
    for name, value in (("seed", seed), ("devices", devices), ("sessions", sessions)):
        command += ["--set", f"{name}={value}"]
    paths = os.pathsep.join(str(ROOT / name) for name in ("", "connectors", "deploy"))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    told = json.loads(done.stdout)
    return {name: told[name] for name in ("events", "bytes")}


def _contenders(options: argparse.Namespace) -> tuple[Ready, list[dict[str, str]]]:
    own = Environment(Path(sys.executable), platform.python_version(), "")
    ready: Ready = {}
    missing = []
    looked_for: dict[str, Environment | Missing] = {}
    for contender in CONTENDERS:
        if contender.name not in options.contenders:
            continue
        if not contender.requirement:
            ready[contender.name] = (contender, own)
            continue
        if contender.requirement not in looked_for:
            say(f"looking for {contender.requirement}")
            looked_for[contender.requirement] = find_environment(
                contender, options.environments, may_install=not options.installed
            )
        found = looked_for[contender.requirement]
        if isinstance(found, Missing):
            say(f"{contender.title} does not take part: {found.reason}")
            missing.append({"title": contender.title, "reason": found.reason})
        else:
            ready[contender.name] = (contender, found)
    add_other_pythons(ready, "plain")
    return ready, missing


def _summary(each: tuple[Contender, Environment], rounds: Rounds, events: int) -> dict[str, Any]:
    contender, environment = each
    versions = {"python": environment.python_version}
    if environment.version:
        versions[contender.requirement.partition("==")[0]] = environment.version
    summary = {
        "name": contender.name,
        "title": contender.title,
        "versions": versions,
        "note": contender.note,
        **summed_up(contender.name, rounds, events),
    }
    if contender.name != "walle":
        # of the same round: the machine's speed drifts from round to round
        ratios = [costs[contender.name][0].cpu_s / costs["walle"][0].cpu_s for costs in rounds]
        summary["walle_ratio"] = quartiles(ratios)
    return summary


if __name__ == "__main__":
    raise SystemExit(main())
