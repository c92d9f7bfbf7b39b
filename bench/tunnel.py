"""The tunnel over a real Apache Kafka: make bench-tunnel.

Latency is measured by size, up and down, plain and over mutual TLS, warm, cold and resumed. Links
are loopback, or have 50 ms of round trip, and a bare kafka-python runs beside. Throughput is
measured by codec, records of a frame and linger. The broker is made here, or is that of
WALLE_KAFKA (see docs/kafka.md). Each measurement is a process of its own; progress on stderr,
tables on stdout.
"""

import argparse
import json
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from apart import ROOT, measure_apart
from console import keep, show, surroundings
from latency_parts.quiet import spin
from tunnel_parts.bars import bars
from tunnel_parts.cold import measure_cold, measure_handshake
from tunnel_parts.network import LINKS, Reach, allow_everything
from tunnel_parts.tables import tables
from tunnel_parts.throughput import measure_linger, measure_throughput
from tunnel_parts.warm import measure_warm
from vm_parts.measuring import say

from walle_stream.errors import BrokerError, BrokerMissingError
from walle_stream.testing.broker import Broker, Listener, open_broker

SIZES: Final = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
WAYS: Final = ("up", "down")
PARTS: Final = ("warm", "cold", "throughput")
CODECS: Final = ("none", "lz4", "zstd")
BATCHES: Final = (1, 10, 100, 1_000)
LINGERS: Final = (0, 2, 5, 20)

MEASUREMENTS: Final[dict[str, Callable[..., Any]]] = {
    "warm": measure_warm,
    "cold": measure_cold,
    "handshake": measure_handshake,
    "throughput": measure_throughput,
    "linger": measure_linger,
}

_CLIENT: Final = "bench"  # in the certificate

# clients of several measurements wait beside each other where a link makes them wait
_BESIDE: Final = 4


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    if options.measure:  # in its own process
        task = json.loads(options.task)
        made = MEASUREMENTS[options.measure](Reach(**task.pop("reach")), **task)
        options.out.write_text(json.dumps({"made": made}))
        return 0
    began, load = time.monotonic(), os.getloadavg()[0]
    controls = [spin(1.0)]
    result: dict[str, Any] = {
        "bench": "tunnel",
        "trial": options.trial,
        "quick": options.quick,
        "seed": options.seed,
        "settings": {name: getattr(options, name) for name in ("samples", "cold", "records")},
        "sizes": list(SIZES),
        "parts": options.parts,
    }
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        try:
            broker = open_broker(Path(folder))
        except (BrokerError, BrokerMissingError) as error:
            say(f"bench-tunnel: {error}")
            return error.exit_code
        with broker:
            if broker.kind != "given":
                allow_everything(broker.options(), _CLIENT)
            reaches = _reaches(broker)
            result |= {"broker": broker.kind, "listeners": list(reaches)}
            for part in options.parts:
                result |= _PARTS[part](options, reaches)
    controls.append(spin(1.0))
    result |= surroundings(load) | {"controls": controls}
    result["versions"] |= {"kafka-python": version("kafka-python"), "openssl": ssl.OPENSSL_VERSION}
    result["wall_s"] = round(time.monotonic() - began, 1)
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json
    is_whole = options.parts == list(PARTS) and len(result["listeners"]) == 2  # noqa: PLR2004 - both
    if path is None and is_whole and not options.quick:
        path = ROOT / "bench/results/tunnel.json"
    keep(result, path, "a quick look, or not all parts and listeners")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, help="records of each size, warm (200)")
    parser.add_argument("--cold", type=int, help="new clients of each size and state (3)")
    parser.add_argument("--records", type=int, help="of a measurement of throughput (4,000)")
    parser.add_argument("--seed", type=int, default=2022)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="few records")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--json", type=Path, help="bench/results/tunnel.json")
    parser.add_argument("--measure", choices=MEASUREMENTS, help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.samples = options.samples or (10 if options.quick else 200)
    options.cold = options.cold or (1 if options.quick else 3)
    options.records = options.records or (500 if options.quick else 4_000)
    if min(options.samples, options.cold, options.records) <= 0:
        parser.error("--samples, --cold and --records must be above 0")
    return options


def _reaches(broker: Broker) -> dict[str, Reach]:
    # by transport; a broker that was given may have one of them alone
    listeners: tuple[tuple[str, Listener], ...] = (
        ("plain", "plain"),
        ("TLS", "tls"),
        ("TLS", "mutual"),  # where there is one, in the place of the other
    )
    found = {}
    for name, listener in listeners:
        try:
            address = broker.address(listener)
        except BrokerMissingError:
            continue
        tls = {}
        if listener != "plain":
            tls = {key: str(path) for key, path in _files(broker).items()}
        found[name] = Reach(address, tls, "loopback")
    return found


def _files(broker: Broker) -> dict[str, Path]:
    files = broker.files(_CLIENT)
    given = {"ca": files.ca, "cert": files.cert, "key": files.key}
    # a broker that was given without a certificate wants none
    return {key: path for key, path in given.items() if path != Path()}


def _measured(name: str, reach: Reach, **task: Any) -> Any:
    text = json.dumps({"reach": reach._asdict(), **task})
    return measure_apart(Path(__file__), "--measure", name, "--task", text)["made"]


def _warm(options: argparse.Namespace, reaches: dict[str, Reach]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []

    def measure(
        place: tuple[str, str], way: str, who: list[str], samples: int
    ) -> list[dict[str, Any]]:
        transport, link = place
        reach = reaches[transport]._replace(link=link)
        found: list[dict[str, Any]] = _measured(
            "warm",
            reach,
            way=way,
            who=who,
            sizes=list(SIZES),
            samples=samples,
            seed=options.seed,
        )
        for each in found:
            say(
                f"  {transport}, {link}, {way}, {each['who']}, {each['size']:,} B: p50 "
                f"{each['received_ms']['p50']:.1f}, p99 {each['received_ms']['p99']:.1f} ms"
            )
        return [each | {"transport": transport, "link": link} for each in found]

    say("warm connections")
    for transport in reaches:
        for way in WAYS:
            # each record of one beside one of the other: whatever the machine does meets both
            rows += measure((transport, "loopback"), way, ["ours", "bare"], options.samples)
    with ThreadPoolExecutor(_BESIDE) as pool:
        for transport, link in _links(reaches):
            # a bar is at p99 of the one link: of fewer samples that would be the worst one
            has_bar = (transport, link) == ("TLS", "50 ms")
            samples = options.samples if has_bar else max(options.samples // 6, 5)
            place = (transport, link)
            waiting = [
                pool.submit(measure, place, way, [who], samples)
                for who in ("ours", "bare")
                for way in WAYS
            ]
            for each in waiting:
                rows += each.result()
    return {"warm": rows}


def _cold(options: argparse.Namespace, reaches: dict[str, Reach]) -> dict[str, Any]:
    say("new clients")
    rows, shakes = [], []
    places = [(name, "loopback") for name in reaches]
    places += [each for each in _links(reaches) if each[1] == "50 ms"]
    with ThreadPoolExecutor(_BESIDE) as pool:
        for transport, link in places:
            reach = reaches[transport]._replace(link=link)
            task = {
                "sizes": list(SIZES),
                "samples": options.cold if link == "loopback" else max(options.cold // 2, 1),
                "seed": options.seed,
            }
            if link == "loopback":
                found = [_measured("cold", reach, way=way, **task) for way in WAYS]
            else:
                waiting = [pool.submit(_measured, "cold", reach, way=way, **task) for way in WAYS]
                found = [each.result() for each in waiting]
            more = {"transport": transport, "link": link}
            rows += [row | more for each in found for row in each]
            say(f"  {transport}, {link}")
            if transport == "TLS":
                made = _measured("handshake", reach, samples=5 * options.cold)
                shakes += [each | {"link": link} for each in made]
    return {"cold": rows, "handshake": shakes}


def _throughput(options: argparse.Namespace, reaches: dict[str, Reach]) -> dict[str, Any]:
    say("throughput")
    reach = reaches.get("TLS") or reaches["plain"]
    task = {"records": options.records, "seed": options.seed}
    rows, lingers = [], []
    for codec in CODECS:
        rows += _measured("throughput", reach._replace(codec=codec), batches=BATCHES, **task)
        for each in rows[-len(BATCHES) - 1 :]:
            name = f"{each['batch']} a frame" if each["batch"] else "bare"
            say(f"  {codec}, {name}: {each['records_per_s']:,.0f} records a second")
    samples = max(options.samples // 3, 5)
    for linger in LINGERS:
        slow = reach._replace(linger_ms=linger)
        lingers.append(_measured("linger", slow, samples=samples, **task))
        say(f"  linger {linger} ms: a record alone {lingers[-1]['ms']['median']:.1f} ms")
    return {"throughput": rows, "linger": lingers}


_PARTS: Final = {"warm": _warm, "cold": _cold, "throughput": _throughput}


def _links(reaches: dict[str, Reach]) -> Iterator[tuple[str, str]]:
    for link in LINKS:
        if link == "loopback":
            continue
        for transport in reaches:
            # the phone's link says what loss does, not what TLS does
            if link != "phone" or transport == list(reaches)[-1]:
                yield transport, link


if __name__ == "__main__":
    raise SystemExit(main())
