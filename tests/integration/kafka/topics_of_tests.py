"""Fresh topics for each case, made before and deleted behind it; the shop's task over them."""

import json
import secrets
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import yaml

from kafka import KafkaConsumer, TopicPartition
from walle_connectors.kafka.admin import admin_client
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.topics import create_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.clock import monotonic_ms
from walle_stream.wire.record import decode_record

WAIT_MS = 60_000

SHOP_TASK = {
    "apiVersion": "walle/v1",
    "kind": "Task",
    "metadata": {"name": "shop-ipv"},
    "spec": {
        "version": "1",
        "script": str(Path(__file__).parents[3] / "configs" / "shop.py"),
        "triggers": [{"sequence": ["page_exit"]}],
        "pages": ["item"],
    },
}


def shop_pipeline(folder, name, script=None, **spec):
    """Write a pipeline with the shop's task, or with its triggers and another script."""
    task = SHOP_TASK
    if script is not None:
        (folder / "told.py").write_text(script)
        task = {**task, "spec": {**task["spec"], "script": str(folder / "told.py")}}
    pipeline = {
        "apiVersion": "walle/v1",
        "kind": "Pipeline",
        "metadata": {"name": name},
        "spec": {**spec, "tasks": [{"task": "shop-ipv"}]},
    }
    file = folder / "p.yaml"
    file.write_text(yaml.safe_dump_all([pipeline, task]))
    return file


def told(walle, data_dir):
    """Return what scripts emitted, by device and in its order."""
    found = defaultdict(list)
    for line in walle("features", "list", "--data-dir", data_dir, "--json").stdout.splitlines():
        row = json.loads(line)
        found[row["device_id"]].append(row["feature"])
    return found


def until(look):
    """Ask until something is there, and return it."""
    deadline_ms, tick = monotonic_ms() + WAIT_MS, Event()
    while not (found := look()):
        assert monotonic_ms() < deadline_ms, "it did not happen in time"
        tick.wait(0.02)
    return found


def committed_records(address, topic, partitions):
    """Yield envelope and value of what transactions have committed to a topic."""
    consumer = KafkaConsumer(
        bootstrap_servers=[address], isolation_level="read_committed", group_id=None
    )
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for found in consumer.poll(timeout_ms=200).values():
                yield from (decode_record(each.key, each.value, each.headers) for each in found)
    finally:
        consumer.close()


@contextmanager
def fresh_model(address, partitions=5, **keys):
    name = f"walle-test-{secrets.token_hex(6)}"
    model = KafkaTunnelModel(brokers=address, topic=name, down_topic=f"{name}-down", **keys)
    needed = [
        NeededTopic(each, "test", partitions, model.max_bytes)
        for each in (model.topic, model.down_topic)
    ]
    create_topics(model, needed)
    try:
        yield model
    finally:
        with admin_client(model) as admin:
            admin.delete_topics([each.name for each in needed], raise_errors=False)
