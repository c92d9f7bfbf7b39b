"""The shop's job over a real Kafka broker against other streaming libraries: make bench-peers.

The raw events are written into a topic once. Every contender reads it from its beginning in a fresh
group, and ends. It writes the same features, which are checked, to a topic of its own, with its
usual guarantee. Rounds take turns; what counts is the CPU of all of its threads and
processes, the broker's apart. Then each runs beside a producer at a fixed rate, for the time
from a page's exit to its feature. The broker is that of the tests: WALLE_KAFKA, Docker, a JDK.
"""

import argparse
import importlib.util
import os
import platform
import secrets
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from console import keep, show, surroundings
from peers import simulate
from peers_parts.contenders import Contender
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
from peers_parts.kafka_contenders import KAFKA_CONTENDERS
from peers_parts.kafka_job import PARTITIONS
from peers_parts.kafka_latency import Latency, measure_latency
from peers_parts.kafka_running import run_over_kafka
from peers_parts.kafka_tables import bars, kafka_tables
from peers_parts.kafka_topics import BenchTopics, raw_records
from peers_parts.options import parse, peers_parser
from peers_parts.running import ROOT
from vm_parts.measuring import quartiles, say

from walle_stream.testing.broker import open_broker

NAMES: Final = [contender.name for contender in KAFKA_CONTENDERS]
PACED_DEVICES: Final = 40
"""Of the shop that latencies are measured over: few, so that pages end within seconds."""
EVENTS_PER_VISIT: Final = 50
"""At least, so that there are enough."""


def main() -> int:
    """Check, measure, print the tables, write the JSON."""
    options = _options()
    began = time.monotonic()
    load = os.getloadavg()[0]
    ready, missing = _contenders(options)
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as temporary:
        folder = Path(temporary)
        with open_broker(folder) as broker:
            topics = BenchTopics(
                broker.address().partition(",")[0], f"walle-bench-{secrets.token_hex(4)}"
            )
            try:
                found = _measure(options, ready, topics, folder)
            finally:
                topics.delete()
    result = {
        "bench": "peers-kafka",
        "trial": options.trial,
        "quick": options.quick,
        "seed": options.seed,
        "settings": {name: getattr(options, name) for name in ("devices", "sessions", "rounds")},
        **found,
        "missing": missing,
        **surroundings(load),
        "wall_s": round(time.monotonic() - began, 1),
    }
    show(kafka_tables(result))
    path = options.json
    if path is None and not options.quick and options.contenders == NAMES:
        path = ROOT / "bench/results/peers-kafka.json"
    keep(result, path, "a quick look, or not all contenders")
    return 0


def _options() -> argparse.Namespace:
    parser = peers_parser(
        NAMES, "bench/results/peers-kafka.json", prog="bench/peers.py --kafka", description=__doc__
    )
    parser.add_argument("--latency-seconds", type=int, help="of each latency run (30); 0: none")
    options = parse(parser)
    if options.latency_seconds is None:
        options.latency_seconds = 5 if options.quick else 30
    return options


def _contenders(options: argparse.Namespace) -> tuple[Ready, list[dict[str, str]]]:
    own = Environment(Path(sys.executable), platform.python_version(), "")
    ready: Ready = {}
    missing = []
    for contender in KAFKA_CONTENDERS:
        if contender.name not in options.contenders:
            continue
        found = _environment(contender, own, options)
        if isinstance(found, Missing):
            say(f"{contender.title} does not take part: {found.reason}")
            missing.append({"title": contender.title, "reason": found.reason})
        else:
            ready[contender.name] = (contender, found)
    if not ready:
        sys.exit("none of the contenders is here: nothing is measured")
    add_other_pythons(ready, "plain-confluent")
    return ready, missing


def _environment(
    contender: Contender, own: Environment, options: argparse.Namespace
) -> Environment | Missing:
    if contender.requirement:
        say(f"looking for {contender.requirement}")
        return find_environment(contender, options.environments, may_install=not options.installed)
    if contender.driver == "librdkafka" and not importlib.util.find_spec("confluent_kafka"):
        return Missing("confluent-kafka is not installed: the extra confluent")
    return own


def _measure(
    options: argparse.Namespace, ready: Ready, topics: BenchTopics, folder: Path
) -> dict[str, Any]:
    small, whole = folder / "small.jsonl", folder / "shop.jsonl"
    simulate(small, options.seed, CHECKED_DEVICES, 2)
    checked = topics.make("small")
    count = topics.load(checked, raw_records(small))
    lines = [each.line for each in raw_records(small)]
    check(ready, lines, PARTITIONS, lambda *who: run_over_kafka(*who, topics, checked, count))
    one = topics.make("one")
    topics.load(one, islice(raw_records(small), 1))
    size = simulate(whole, options.seed, options.devices, options.sessions)
    raw = topics.make("raw")
    events = topics.load(raw, raw_records(whole))
    say(f"{events:,} events, {size['bytes'] / 2**20:,.0f} MiB in {PARTITIONS} partitions")
    rounds, made = take_turns(
        ready,
        options.rounds,
        start=lambda *who: run_over_kafka(*who, topics, one, 1),
        job=lambda *who: run_over_kafka(*who, topics, raw, events),
    )
    contenders = [_summary(each, ready, rounds, events) for each in ready.values()]
    latency = {}
    if options.latency_seconds:
        slowest = min(
            statistics.median(events / costs[name][0].wall_s for costs in rounds) for name in ready
        )
        latency = {"rate": round(slowest / 4), "seconds": options.latency_seconds}
        paced = folder / "paced.jsonl"
        visits = int(slowest / 4 * options.latency_seconds / EVENTS_PER_VISIT / PACED_DEVICES) + 1
        simulate(paced, options.seed, PACED_DEVICES, visits)
        measured = _latencies(ready, topics, paced, slowest / 4, options.latency_seconds)
        for each in contenders:
            each["latency"] = measured[each["name"]]._asdict()
    return {
        "events": events,
        "bytes": size["bytes"],
        "features": made.features,
        "partitions": PARTITIONS,
        "contenders": contenders,
        "bars": bars(contenders),
        "latency": latency,
    }


def _summary(
    each: tuple[Contender, Environment], ready: Ready, rounds: Rounds, events: int
) -> dict[str, Any]:
    contender, environment = each
    summary = {
        "name": contender.name,
        "title": contender.title,
        "driver": contender.driver,
        "keeps_state": contender.keeps_state,
        "version": environment.version,
        "python": environment.python_version,
        "note": contender.note,
        **summed_up(contender.name, rounds, events),
    }
    # of the same round: the machine's speed drifts from round to round
    others = [ours for ours in ("walle-confluent", "walle") if ours in ready]
    summary["ratios"] = {
        ours: quartiles([r[contender.name][0].cpu_s / r[ours][0].cpu_s for r in rounds])
        for ours in others
        if ours != contender.name
    }
    summary["ratios_without_start"] = {
        ours: quartiles(_ratios_without_start(rounds, contender.name, ours))
        for ours in others
        if ours != contender.name
    }
    return summary


def _ratios_without_start(rounds: Rounds, name: str, ours: str) -> list[float]:
    found = []
    for costs in rounds:
        pairs = (costs[name], costs[ours])
        if all(cost.cpu_s > 2 * start.cpu_s for cost, start in pairs):
            theirs, own = (cost.cpu_s - start.cpu_s for cost, start in pairs)
            found.append(theirs / own)
    return found


def _latencies(
    ready: Ready, topics: BenchTopics, paced: Path, rate: float, seconds: int
) -> dict[str, Latency]:
    records = list(islice(raw_records(paced, has_markers=False), int(rate * seconds)))
    found = {}
    for name, (contender, environment) in ready.items():
        found[name] = measure_latency(contender, environment, topics, records, rate)
        say(f"latency: {contender.title}: {msgspec.json.encode(found[name]).decode()}")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
