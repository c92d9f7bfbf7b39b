"""Calls of services and look-ups over a real Apache Kafka: make bench-calls.

Round trips: a device's script asks a service of ``walle cloud``, and asks again in ``on_reply``.
From one question to the next the service sees a whole round trip, on one clock: reply, way down,
``on_reply``, commit, way up, merge, service. A bare producer and consumer of kafka-python that send
a record there and back stand beside it, over the same listener.

Look-ups: one of three workers is killed (SIGKILL); how long until another one shows all devices of
its partitions again. Progress on stderr.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, Final

import yaml
from apart import ROOT
from console import keep, show, surroundings
from tunnel_parts.network import allow_everything
from vm_parts.measuring import distribution, say
from vm_parts.tables import Table

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from walle_connectors.kafka import CONNECTOR
from walle_stream.testing.broker import Broker, Listener, open_broker
from walle_stream.wire.record import RecordEnvelope, encode_record

ROUND_TRIP_BAR_MS: Final = 30.0
LOOK_UP_BAR_S: Final = 15.0
"""The session's time-out, 10 s, and 5 s more."""

_CLIENT: Final = "bench"  # in the certificate
_PARTITIONS: Final = 4
_WORKERS: Final = 3
_DEVICES: Final = 60
_WARM_UP: Final = 20
_PATIENCE_S: Final = 120.0
_LOOK_S: Final = 0.05
_LISTENERS: Final[dict[str, Listener]] = {"plain": "plain", "mutual TLS": "mutual"}

_SERVICE: Final = """import pathlib
import time

LOG = pathlib.Path(__file__).with_name("asked").open("a", buffering=1)


def ask(call):
    LOG.write(f"{call.device_id} {time.monotonic()}\\n")
    return {"n": call.question["n"] + 1}
"""
_SCRIPT: Final = """def run(ctx, page):
    if ctx.state.get("asked") is None:
        ctx.state.put("asked", True)
        ctx.call_cloud("ask", {{"n": 0}})


def on_reply(ctx, reply):
    if reply.value["n"] < {rounds}:
        ctx.call_cloud("ask", reply.value)
"""


def main() -> int:
    """Measure, print the tables, write the JSON."""
    options = _options()
    began, load = time.monotonic(), os.getloadavg()[0]
    trips: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        home = Path(folder)
        with open_broker(home / "broker") as broker:
            allow_everything(broker.options(), _CLIENT)
            for number, (said, listener) in enumerate(_LISTENERS.items()):
                client = broker.options(listener, _CLIENT)
                for who, measure in (("walle", _round_trips), ("bare kafka-python", _bare_trips)):
                    place = home / f"{number}-{len(trips)}"
                    place.mkdir()
                    times = measure(broker, listener, client, place, options.trips)
                    trips.append({"listener": said, "who": who, "ms": distribution(times)})
                    say(f"bench-calls: {trips[-1]}")
            looked = [_look_ups(broker, home, number) for number in range(options.kills)]
    result: dict[str, Any] = {
        "bench": "calls",
        "trial": options.trial,
        "settings": {"trips": options.trips, "kills": options.kills},
        "trips": trips,
        "look_ups_s": looked,
        **surroundings(load),
    }
    result["wall_s"] = round(time.monotonic() - began, 1)
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json or (None if options.quick else ROOT / "bench/results/calls.json")
    keep(result, path, "a quick look")
    return 0


def bars(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the issue asks for, beside what was measured."""
    [over_tls] = [
        each["ms"]["p99"]
        for each in result["trips"]
        if (each["listener"], each["who"]) == ("mutual TLS", "walle")
    ]
    longest = max(result["look_ups_s"])
    return {
        "round_trip_over_tls_p99_ms": {
            "value": over_tls,
            "bar": ROUND_TRIP_BAR_MS,
            "met": over_tls < ROUND_TRIP_BAR_MS,
        },
        "look_ups_after_a_kill_s": {
            "value": longest,
            "bar": LOOK_UP_BAR_S,
            "met": longest <= LOOK_UP_BAR_S,
        },
    }


def tables(result: dict[str, Any]) -> list[Table]:
    """Return the round trips, and the look-ups."""
    names = ("p50", "p75", "p95", "p99")
    rows = [
        [f"{each['who']}, {each['listener']}", *(f"{each['ms'][name]:.1f}" for name in names)]
        for each in result["trips"]
    ]
    trips = f"{result['settings']['trips']} round trips of each of two devices, one at a time"
    looked = sorted(result["look_ups_s"])
    shown = [f"{statistics.median(looked):.1f}", f"{looked[-1]:.1f}"]
    note = f"{len(looked)} kills of one of {_WORKERS} workers; the session's time-out is 10 s"
    return [
        Table("A call's round trip, ms", ["", *names], rows, trips),
        Table(
            "Look-ups after a kill, s",
            ["", "median", "longest"],
            [["all right again", *shown]],
            note,
        ),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trips", type=int, default=1_000, help="of each device")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="100 trips, one kill")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--json", type=Path, help="bench/results/calls.json")
    options = parser.parse_args()
    if options.quick:
        options.trips, options.kills = 100, 1
    return options


def _topics(broker: Broker, place: str, *names: str) -> list[str]:
    made = [f"{place}-{name}" for name in names]
    admin = KafkaAdminClient(**broker.options())
    admin.create_topics(
        {each: {"num_partitions": _PARTITIONS, "replication_factor": 1} for each in made}
    )
    admin.close()
    return made


def _round_trips(
    broker: Broker, listener: Listener, client: dict[str, Any], place: Path, count: int
) -> list[float]:
    topics = _topics(broker, place.name, "events", "up", "down")
    file = _pipeline(broker, listener, place, topics, count)
    devices, log = ["one", "two"], place / "asked"
    said = place / "cloud.log"
    with ExitStack() as stack:
        stack.enter_context(_process(said, *_cloud(file, place / "w", _free_port())))
        _wait(lambda: "ready" in said.read_text(), "walle cloud")
        run = "run", str(file), "--data-dir", str(place / "d")
        stack.enter_context(_process(place / "run.log", *run))
        producer = KafkaProducer(**client)
        for device in devices:
            for kind, time_ms in (("page_enter", 1_000), ("page_exit", 2_000)):
                event = {
                    "id": kind,
                    "kind": kind,
                    "page_id": "p",
                    "page_instance": "1",
                    "event_time_ms": 1_700_000_000_000 + time_ms,
                    "contents": {},
                }
                producer.send(topics[0], json.dumps(event).encode(), device.encode())
        producer.close()
        wanted = len(devices) * count
        _wait(lambda: log.exists() and len(log.read_text().splitlines()) >= wanted, "all replies")
    asked: dict[str, list[float]] = {}
    for line in log.read_text().splitlines():
        device, at_s = line.split()
        asked.setdefault(device, []).append(float(at_s))
    return [
        1e3 * (later - earlier)
        for times in asked.values()
        for earlier, later in zip(times[_WARM_UP:], times[_WARM_UP + 1 :], strict=False)
    ]


def _bare_trips(
    broker: Broker, _listener: Listener, client: dict[str, Any], place: Path, count: int
) -> list[float]:
    up, down = _topics(broker, place.name, "up", "down")
    total = 2 * count + _WARM_UP

    def answer() -> None:
        producer = KafkaProducer(**client, acks="all")
        consumer = KafkaConsumer(up, **client, auto_offset_reset="earliest")
        for number, each in enumerate(consumer, 1):
            producer.send(down, each.value)
            producer.flush()
            if number == total:
                break
        producer.close()
        consumer.close()

    thread = Thread(target=answer, daemon=True)
    thread.start()
    producer = KafkaProducer(**client, acks="all")
    consumer = KafkaConsumer(down, **client, auto_offset_reset="earliest")
    times = []
    for _ in range(total):
        began = time.monotonic()
        producer.send(up, b"{}")
        next(consumer)
        times.append(1e3 * (time.monotonic() - began))
    thread.join()
    producer.close()
    consumer.close()
    return times[_WARM_UP:]


def _look_ups(broker: Broker, home: Path, number: int) -> float:
    place = home / f"looked-{number}"
    place.mkdir()
    topics = _topics(broker, place.name, "events", "up", "down")
    file = _pipeline(broker, "plain", place, topics, 1)
    devices = [f"device-{each:04d}" for each in range(_DEVICES)]
    producer = KafkaProducer(**broker.options(), acks="all")
    for device in devices:
        partition = CONNECTOR.device_partition(device, _PARTITIONS)
        head = RecordEnvelope(
            device_id=device,
            incarnation="0123456789abcdef",
            partition=partition,
            epoch=1,
            sequence_number=1,
            task="t",
            task_version="1",
            event_time_ms=1_700_000_000_000,
        )
        key, value, headers = encode_record(head, b"{}")
        producer.send(topics[1], value, key, headers, partition=partition)
    producer.close()
    with ExitStack() as stack:
        ports = [_free_port() for _ in range(_WORKERS)]
        workers = []
        for port in ports:
            command = _cloud(file, place / f"w-{port}", port)
            workers.append(stack.enter_context(_process(place / f"{port}.log", *command)))

        def is_shown() -> bool:
            return all(_get(ports[0], f"features/{device}") for device in devices)

        _wait(lambda: all((_get(each, "healthz") or {}).get("partitions") for each in ports), "all")
        _wait(is_shown, "the features")
        began = time.monotonic()
        workers[-1].kill()
        _wait(is_shown, "the features of the killed worker")
        took_s = time.monotonic() - began
    say(f"bench-calls: look-ups are right again after {took_s:.1f} s")
    return round(took_s, 2)


def _pipeline(
    broker: Broker, listener: Listener, place: Path, topics: list[str], count: int
) -> Path:
    events, up, down = topics
    way: dict[str, Any] = {"connector": "kafka", "brokers": broker.address(listener).split(",")}
    if listener != "plain":
        files = broker.files(_CLIENT)
        way["tls"] = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
    (place / "service.py").write_text(_SERVICE)
    (place / "t.py").write_text(_SCRIPT.format(rounds=count))
    head = {"apiVersion": "walle/v1", "metadata": {"name": place.name}}
    spec = {
        "source": {**way, "topic": events},
        "tunnel": {**way, "topic": up, "downTopic": down},
        "sequence": {"outOfOrder": "0s"},
        "runtime": {"partitions": _PARTITIONS},
        "services": {"ask": {"file": "service.py", "function": "ask"}},
        "tasks": [{"task": place.name}],
    }
    task = {"version": "1", "script": "t.py", "triggers": [{"sequence": ["page_exit"]}]}
    file = place / "pipeline.yaml"
    parts = {**head, "kind": "Pipeline", "spec": spec}, {**head, "kind": "Task", "spec": task}
    file.write_text(yaml.safe_dump_all(parts))
    return file


def _cloud(file: Path, data_dir: Path, port: int) -> list[str]:
    return ["cloud", str(file), "--data-dir", str(data_dir), "--web-port", str(port)]


@contextmanager
def _process(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        command = [sys.executable, "-m", "walle_stream.cli", *arguments]
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _get(port: int, page: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, OSError):
        return None


def _wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited {_PATIENCE_S:.0f} s for {what}")
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    raise SystemExit(main())
