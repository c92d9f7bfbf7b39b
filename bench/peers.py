"""The shop's job against other streaming libraries and a plain loop: make bench-peers.

``walle simulate`` writes the events once; every contender reads the same JSON
Lines with msgspec into the same ``Event``, builds the same pages and makes the same
features, which is checked. Rounds take turns; what counts is the CPU of all of a
contender's threads and processes. Progress on stderr, the table on stdout.
``--kafka`` is the other half, over a real broker: see ``peers_kafka``.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from console import keep, show, surroundings
from peers_parts.contenders import CONTENDERS, Contender
from peers_parts.environments import Environment, Missing, find_environment
from peers_parts.options import parse, peers_parser
from peers_parts.running import ROOT, Cost, Made, canonical, digest_of, run_contender
from peers_parts.tables import tables
from vm_parts.measuring import quartiles, say

NAMES: Final = [contender.name for contender in CONTENDERS]
CHECKED_DEVICES: Final = 60
"""Of the shop over which everyone is compared with the oracle first."""

type Ready = dict[str, tuple[Contender, Environment]]


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
        _check(ready, small)
        source = Path(folder) / "shop.jsonl"
        size = simulate(source, options.seed, options.devices, options.sessions)
        say(f"{size['events']:,} events, {size['bytes'] / 2**20:,.0f} MiB")
        rounds, made = _rounds(ready, source, one, options.rounds)
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
    # an older Python is slower or faster by itself: the plain loop says by how much
    if "plain" in ready:
        plain = ready["plain"][0]
        for _, environment in list(ready.values()):
            minor = _minor(environment)
            if minor != _minor(own):
                named = plain._replace(name=f"plain-{minor}", title=f"{plain.title}, {minor}")
                ready.setdefault(named.name, (named, environment._replace(version="")))
    return ready, missing


def _check(ready: Ready, small: Path) -> None:
    expected = _of_oracle(small)
    for contender, environment in ready.values():
        _, made = run_contender(contender, environment, small)
        if made != expected:
            sys.exit(
                f"{contender.title} made {made.features} features that are not the oracle's "
                f"{expected.features}: nothing is measured"
            )
        say(f"{contender.title}: {made.features} features, the same as the oracle's")


def _of_oracle(small: Path) -> Made:
    oracle = module_of(ROOT / "tests/integration/naive_shop.py")
    encode = module_of(ROOT / "configs/shop.py").encode
    by_device = oracle.recompute(small.read_bytes().splitlines(), 16)
    features = [feature for each in by_device.values() for feature in each]
    return digest_of(canonical(feature, encode(feature)) for feature in features)


def module_of(path: Path) -> Any:
    """Load a Python file of the checkout that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path.relative_to(ROOT)} is missing: run from a checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _minor(environment: Environment) -> str:
    return ".".join(environment.python_version.split(".")[:2])


def _rounds(
    ready: Ready, source: Path, one: Path, count: int
) -> tuple[list[dict[str, tuple[Cost, Cost]]], Made]:
    # each round begins with another contender, so that nobody always has the warm machine
    names = list(ready)
    rounds = []
    first: Made | None = None
    for number in range(count):
        turn = number % len(names)
        costs = {}
        for name in [*names[turn:], *names[:turn]]:
            start, _ = run_contender(*ready[name], one)
            cost, made = run_contender(*ready[name], source)
            first = first or made
            if made != first:
                sys.exit(f"{ready[name][0].title} made other features than the others: no result")
            costs[name] = (cost, start)
            say(f"round {number + 1}: {ready[name][0].title}: {cost.cpu_s:.2f} CPU-seconds")
        rounds.append(costs)
    return rounds, first or Made(0, "")


def _summary(
    each: tuple[Contender, Environment],
    rounds: list[dict[str, tuple[Cost, Cost]]],
    events: int,
) -> dict[str, Any]:
    contender, environment = each
    costs = [costs[contender.name] for costs in rounds]
    versions = {"python": environment.python_version}
    if environment.version:
        versions[contender.requirement.partition("==")[0]] = environment.version
    summary = {
        "name": contender.name,
        "title": contender.title,
        "versions": versions,
        "note": contender.note,
        "events_per_cpu_second": quartiles([events / cost.cpu_s for cost, _ in costs], 0),
        # nothing is left to divide by where a run is hardly longer than its start
        "without_start": quartiles(
            [
                events / (cost.cpu_s - start.cpu_s)
                for cost, start in costs
                if cost.cpu_s > 2 * start.cpu_s
            ],
            0,
        ),
        "start_cpu_s": round(statistics.median(start.cpu_s for _, start in costs), 3),
        "peak_rss_mib": round(statistics.median(cost.peak_rss_mib for cost, _ in costs), 1),
        "rounds": [
            {**cost._asdict(), "start_cpu_s": start.cpu_s, "start_rss_mib": start.peak_rss_mib}
            for cost, start in costs
        ],
    }
    if contender.name != "walle":
        # of the same round: the machine's speed drifts from round to round
        ratios = [costs[contender.name][0].cpu_s / costs["walle"][0].cpu_s for costs in rounds]
        summary["walle_ratio"] = quartiles(ratios)
    return summary


if __name__ == "__main__":
    raise SystemExit(main())
