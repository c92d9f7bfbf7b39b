"""The cloud side over a real Apache Kafka: make bench-cloud.

A topic is filled with features of many devices. Then ``walle cloud`` and a plain loop read it. The
loop uses kafka-python and the same decoding, and writes a row per feature to RocksDB, without
fence, heads and latest N. Each is a process of its own; what an empty topic costs is taken off.
CPU is of all threads, bytes written are what the kernel counts for the process.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from apart import ROOT
from console import keep, show, surroundings
from tunnel_parts.payload import feature
from vm_parts.measuring import say
from vm_parts.tables import Table

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from walle_stream.testing.broker import open_broker
from walle_stream.types import partition_of
from walle_stream.wire.record import RecordEnvelope, decode_record, encode_record

SIZES: Final = (300, 1_000)
PARTITIONS: Final = (4, 96)
PER_SECOND_BAR: Final = 20_000
WRITTEN_BAR: Final = 2.0

_SEED: Final = 2022
_BLOCK_BYTES: Final = 512
_LOOK_S: Final = 0.05


class Cost(NamedTuple):
    """Of one process, until it ended."""

    cpu_s: float
    written_bytes: int
    wall_s: float


class Topic(NamedTuple):
    """A topic to be read."""

    broker: str
    name: str
    partitions: int
    features: int
    size_bytes: int
    """Of all features."""


def main() -> int:
    """Measure, print the table, write the JSON."""
    options = _options()
    if options.plain:
        plain_loop(*options.plain)
        return 0
    began, load, made = time.monotonic(), os.getloadavg()[0], []
    with (
        tempfile.TemporaryDirectory(prefix="walle-bench-") as folder,
        open_broker(Path(folder)) as broker,
    ):
        address = broker.address()
        for partitions in PARTITIONS:
            empty = _filled(address, partitions, 300, 0, options)
            starts = {who: _median(empty, who, options) for who in ("ours", "plain")}
            for size in SIZES:
                topic = _filled(address, partitions, size, options.features, options)
                row = _measured(topic, starts, options)
                say(f"bench-cloud: {row}")
                made.append({"partitions": partitions, "feature_bytes": size, **row})
    result: dict[str, Any] = {
        "bench": "cloud",
        "trial": options.trial,
        "seed": _SEED,
        "settings": {each: getattr(options, each) for each in ("features", "devices", "rounds")},
        "keep": options.keep,
        "made": made,
        **surroundings(load),
    }
    result["wall_s"] = round(time.monotonic() - began, 1)
    result["bars"] = bars(result)
    show(tables(result))
    path = options.json or (None if options.quick else ROOT / "bench/results/cloud.json")
    keep(result, path, "a quick look")
    return 0


def bars(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what issue and docs promise, beside what was measured: the worst of all."""
    slowest = min(row["features_per_cpu_s"] for row in result["made"])
    written = max(row["written_per_feature_byte"] for row in result["made"])
    return {
        "features_per_cpu_s": {
            "value": slowest,
            "bar": PER_SECOND_BAR,
            "met": slowest >= PER_SECOND_BAR,
        },
        "written_per_feature_byte": {
            "value": written,
            "bar": WRITTEN_BAR,
            "met": written <= WRITTEN_BAR,
        },
    }


def tables(result: dict[str, Any]) -> list[Table]:
    """Return a row for each topic."""
    names = ("partitions", "feature_bytes", "features_per_cpu_s", "plain_per_cpu_s", "to_plain")
    head = ("partitions", "bytes", "features/CPU-s", "plain loop", "ratio", "written/feature byte")
    rows = [
        [*(f"{row[name]:,}" for name in names), f"{row['written_per_feature_byte']}"]
        for row in result["made"]
    ]
    note = f"keep {result['keep']}, medians of {result['settings']['rounds']}"
    return [Table("The cloud side over Kafka", list(head), rows, note)]


def plain_loop(broker: str, topic: str, count: str, folder: str) -> None:
    """Read a topic of ``count`` records out into rows of RocksDB, and end."""
    from rocksdict import Rdict, WriteBatch  # noqa: PLC0415 - the others need none

    database = Rdict(folder)
    consumer = KafkaConsumer(bootstrap_servers=broker, enable_auto_commit=False)
    places = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic) or ()]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    left = int(count)
    while left > 0:
        for records in consumer.poll(100, max_records=2_000).values():
            batch = WriteBatch(raw_mode=False)
            for each in records:
                head, value = decode_record(each.key, each.value, each.headers)
                batch.put(f"{head.device_id}/{head.sequence_number:020d}", value)
            database.write(batch)
            left -= len(records)
    consumer.close()
    database.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, default=200_000)
    parser.add_argument("--devices", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="one round of a tenth")
    parser.add_argument("--trial", action="store_true", help="say that the machine was not quiet")
    parser.add_argument("--json", type=Path, help="bench/results/cloud.json")
    parser.add_argument("--plain", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.features, options.rounds = options.features // 10, 1
    return options


def _filled(
    broker: str, partitions: int, size: int, count: int, options: argparse.Namespace
) -> Topic:
    from kafka.admin import KafkaAdminClient  # noqa: PLC0415 - for this alone

    rng = random.Random(_SEED)
    name = f"bench-cloud-{partitions}-{size}-{count}"
    admin = KafkaAdminClient(bootstrap_servers=broker)
    admin.create_topics({name: {"num_partitions": partitions, "replication_factor": 1}})
    admin.close()
    producer = KafkaProducer(
        bootstrap_servers=broker, acks="all", compression_type="zstd", linger_ms=20
    )
    made, size_bytes = [feature(rng, size) for _ in range(1_000)], 0
    for number in range(count):
        device_id = f"device-{number % options.devices:06d}"
        partition = partition_of(device_id, partitions)
        head = RecordEnvelope(
            device_id=device_id,
            incarnation="0123456789abcdef",
            partition=partition,
            epoch=1,
            sequence_number=number // options.devices + 1,
            task="visits",
            task_version="1",
            event_time_ms=1_700_000_000_000 + number,
        )
        key, value, headers = encode_record(head, rng.choice(made))
        producer.send(name, value, key, headers, partition=partition)
        size_bytes += len(value)
    producer.flush(300)
    producer.close()
    return Topic(broker, name, partitions, count, size_bytes)


def _measured(topic: Topic, starts: dict[str, Cost], options: argparse.Namespace) -> dict[str, Any]:
    speeds = {}
    for who, start in starts.items():
        cost = _median(topic, who, options)
        speeds[who] = topic.features / (cost.cpu_s - start.cpu_s)
        if who == "ours":
            written = (cost.written_bytes - start.written_bytes) / topic.size_bytes
            wall_s = cost.wall_s
    return {
        "features_per_cpu_s": round(speeds["ours"]),
        "plain_per_cpu_s": round(speeds["plain"]),
        "to_plain": round(speeds["ours"] / speeds["plain"], 3),
        "written_per_feature_byte": round(written, 2),
        "wall_s": round(wall_s, 1),
    }


def _median(topic: Topic, who: str, options: argparse.Namespace) -> Cost:
    costs = [(_ours if who == "ours" else _plain)(topic, options) for _ in range(options.rounds)]
    return Cost(*(statistics.median(each) for each in zip(*costs, strict=True)))


def _plain(topic: Topic, _options: argparse.Namespace) -> Cost:
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        given = topic.broker, topic.name, str(topic.features), f"{folder}/rows"
        began = time.monotonic()
        process = subprocess.Popen([sys.executable, __file__, "--plain", *given])
        return _ended(process, began)


def _ours(topic: Topic, options: argparse.Namespace) -> Cost:
    with tempfile.TemporaryDirectory(prefix="walle-bench-") as folder:
        file = Path(folder) / "cloud.yaml"
        file.write_text(yaml.safe_dump_all(_definition(topic, Path(folder))))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "walle_stream.cli", "cloud", str(file)]
        command += ["--data-dir", f"{folder}/d", "--web-port", str(port)]
        began = time.monotonic()
        process = subprocess.Popen(
            [*command, "--keep", str(options.keep)], stdout=subprocess.DEVNULL
        )
        while not _is_merged(port, topic):
            if process.poll() is not None:
                raise RuntimeError("walle cloud ended")
            time.sleep(_LOOK_S)
        process.terminate()
        return _ended(process, began)


def _is_merged(port: int, topic: Topic) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            health = json.load(answer)
    except (urllib.error.URLError, OSError):
        return False
    is_all = len(health["partitions"]) == topic.partitions
    return is_all and health["counts"]["features"] >= topic.features


def _ended(process: subprocess.Popen[Any], began: float) -> Cost:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"a process ended with {process.returncode}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(cpu_s, usage.ru_oublock * _BLOCK_BYTES, time.monotonic() - began)


def _definition(topic: Topic, folder: Path) -> list[dict[str, Any]]:
    (folder / "t.py").write_text("def run(ctx, page):\n    pass\n")
    head = {"apiVersion": "walle/v1", "metadata": {"name": topic.name}}
    tunnel = {"connector": "kafka", "brokers": topic.broker, "topic": topic.name}
    spec = {
        "source": {"connector": "simulator", "devices": 1},
        "tunnel": tunnel,
        "runtime": {"partitions": topic.partitions},
        "tasks": [{"task": topic.name}],
    }
    task = {"version": "1", "script": "t.py", "triggers": [{"sequence": ["page_exit"]}]}
    return [
        {**head, "kind": "Pipeline", "spec": spec},
        {**head, "kind": "Task", "spec": task},
    ]


if __name__ == "__main__":
    raise SystemExit(main())
