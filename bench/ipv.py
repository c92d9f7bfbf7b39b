"""The same features made at the device and in the cloud, over one broker: make bench-ipv.

The simulated shop's events take two ways. (a) The device side of ``configs/ipv-kafka.yaml`` sends
features into the tunnel. (b) Raw events go into a topic. ``bench/cloud_baseline.py``, an idiomatic
Faust program, makes the same features of them at the exit, without a window. Neither side
waits for late events. Both are fed at half the rate that the baseline can take, in turns, by a
fixed schedule. Further rounds have raw events that reach the cloud late, twice or never, and a few
devices whose link resembles a phone's. The last rounds run at full speed, for the bytes and for
the cost of merging features in the cloud. Progress on stderr.
"""

import argparse
import os
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from apart import ROOT
from console import keep, show, surroundings
from ipv_parts.judging import bars, judge
from ipv_parts.network import FAULTY, Network
from ipv_parts.rounds import (
    Bench,
    baseline_capacity,
    baseline_round,
    device_round,
    merging_cpu_s,
    raw_bytes,
)
from ipv_parts.shop import shop_lines, true_features
from ipv_parts.tables import tables
from ipv_parts.topics import Topics
from tunnel_parts.network import LINKS, open_link
from vm_parts.measuring import say

from walle_stream.testing.broker import open_broker

_BYTES_LINGER_MS: Final = 100
_CAPACITY_EVENTS: Final = 20_000
_SETTINGS: Final = ("rounds", "others", "seconds", "devices")
_CAPACITY_ROUNDS: Final = 3
_CODECS: Final = ("none", "zstd")
_PHONES: Final = 20
_PHONE_EVENTS_PER_S: Final = 4.0
"""Of each: so few that a link is no queue."""


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        home = Path(folder)
        with open_broker(home / "broker") as broker, closing(Topics(broker.address())) as topics:
            result = _measure(options, home, topics, broker.kind)
    result |= {**surroundings(load), "wall_s": round(time.monotonic() - began, 1)}
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json or (None if options.quick else ROOT / "bench/results/ipv.json")
    keep(result, path, "a quick look")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="of each side (5)")
    parser.add_argument("--others", type=int, help="rounds with faults, and over the link (2)")
    parser.add_argument("--seconds", type=float, help="how long a round is fed (20)")
    parser.add_argument("--devices", type=int, help="visitors of the shop (1,000)")
    parser.add_argument("--rate", type=float, help="events a second (half of the capacity)")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--quick", action="store_true", help="a minute: a small shop, one round")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--json", type=Path, help="bench/results/ipv.json")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.others = options.others or (1 if options.quick else 2)
    options.seconds = options.seconds or (5.0 if options.quick else 20.0)
    options.devices = options.devices or (100 if options.quick else 1_000)
    if (
        min(options.rounds, options.others, options.seconds, options.devices, options.rate or 1.0)
        <= 0
    ):
        parser.error("--rounds, --others, --seconds, --devices and --rate must be above 0")
    return options


def _measure(options: argparse.Namespace, home: Path, topics: Topics, kind: str) -> dict[str, Any]:
    source = home / "shop.jsonl"
    tried = min(_CAPACITY_EVENTS, 4_000 if options.quick else _CAPACITY_EVENTS)
    capacity, capacities = 0.0, list[float]()
    rate = options.rate
    if rate is None:
        bench, _ = _bench(source, topics, options.devices, options.seed, tried)
        # one alone may have met a slow moment of the machine, and the first has cold files
        baseline_capacity(bench)
        capacities = [
            baseline_capacity(bench) for _ in range(1 if options.quick else _CAPACITY_ROUNDS)
        ]
        capacity = statistics.median(capacities)
        rate = capacity / 2
        say(f"the baseline takes {capacity:,.0f} events a second: fed at {rate:,.0f}")
    seed = options.seed
    bench, truth = _bench(source, topics, options.devices, seed, int(rate * options.seconds))
    phones_rate = min(_PHONES * _PHONE_EVENTS_PER_S, rate)
    phones, phones_truth = _bench(
        home / "phones.jsonl", topics, _PHONES, seed, int(phones_rate * options.seconds)
    )
    with open_link(topics.brokers, LINKS["phone"]) as link:
        linked = phones._replace(link=link)
        scenes = {
            "clean": _scene("clean", bench, rate, truth, Network(), options.rounds, seed),
            "faulty": _scene("faulty", bench, rate, truth, FAULTY, options.others, seed),
            "phone": _scene(
                "phone", linked, phones_rate, phones_truth, Network(), options.others, seed
            ),
        }
    return {
        "bench": "ipv",
        "trial": options.trial,
        "quick": options.quick,
        "seed": options.seed,
        "settings": {
            name: getattr(options, name) for name in ("rounds", "others", "seconds", "devices")
        },
        "broker": kind,
        "baseline_events_per_s": round(capacity, 1),
        "baseline_capacities": [round(each, 1) for each in capacities],
        "events_per_s": round(rate, 1),
        "fed_events": bench.events,
        "network": FAULTY._asdict() | {"clock": "shop"},
        "phones": {"devices": _PHONES, "events_per_s": phones_rate, "fed_events": phones.events},
        **scenes,
        "bytes": {codec: _bytes(bench, codec) for codec in _CODECS},
        "merging_cpu_s": round(merging_cpu_s(bench), 3),
    }


def _scene(
    name: str,
    bench: Bench,
    rate: float,
    truth: dict[Any, dict[str, Any]],
    network: Network,
    rounds: int,
    seed: int,
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {"device": [], "baseline": []}
    for number in range(rounds):
        made = {
            "device": lambda: device_round(bench, rate),
            "baseline": lambda number=number: baseline_round(bench, rate, network, seed + number),
        }
        # who comes first changes, as the machine may get slower or faster
        for side in sorted(made, reverse=bool(number % 2)):
            found[side].append(judge(made[side](), truth))
        say(f"{name}, round {number + 1} of {rounds}: {_said(found)}")
    return found


def _bench(
    source: Path, topics: Topics, devices: int, seed: int, events: int
) -> tuple[Bench, dict[Any, dict[str, Any]]]:
    lines = shop_lines(devices, seed, events)
    source.write_bytes(b"\n".join(lines) + b"\n")
    truth = true_features(lines)
    return Bench(topics, topics.brokers, source, len(truth), events), truth


def _bytes(bench: Bench, codec: str) -> dict[str, int]:
    # batches fill up on both sides: nothing waits for a schedule
    full = bench._replace(codec=codec, linger_ms=_BYTES_LINGER_MS)
    outcome = device_round(full, 0.0)
    found = {
        "baseline": raw_bytes(full),
        "device": outcome.uplink_bytes,
        # raw events are JSON: what the form of the features does, and what making them does
        "device_json": device_round(full._replace(form="json"), 0.0).uplink_bytes,
        "features": len(outcome.usable),
    }
    say(f"bytes, {codec}: {found['device'] / found['baseline']:.2%} of the baseline's")
    return found


def _said(rounds: dict[str, list[Any]]) -> str:
    return ", ".join(
        f"{side} {(last := found[-1])['usable_ms']['p50']:.1f} to "
        f"{last['usable_ms']['p99']:.1f} ms, {last['errors']['missing']} missing, "
        f"{last['errors']['differing'] + last['errors']['beyond']} wrong"
        for side, found in rounds.items()
    )


if __name__ == "__main__":
    raise SystemExit(main())
