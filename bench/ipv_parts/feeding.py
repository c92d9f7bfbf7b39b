"""Devices that do nothing but upload: raw events into a topic, on a schedule. A process.

    python -m ipv_parts.feeding JSON

JSON is a ``Feed``. Devices share a connection unless it says otherwise. The schedule is an
open loop as in ``latency_parts.paced``: what the client is late with counts as waiting.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from tunnel_parts.network import LinkedModel

from ipv_parts.network import Network, arrivals
from kafka import KafkaProducer
from walle_connectors.kafka.python_producer import make_producer
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.clock import monotonic_ms

_POLL_S: Final = 0.002
"""As the device side's reader waits for more lines at most."""


class Feed(msgspec.Struct):
    """What to upload."""

    source: str
    """Lines of JSON."""
    events: int
    tunnel: dict[str, Any]
    """Keys of the tunnel's connector: the same client, codec and batches as features have."""
    out: str
    events_per_s: float = 0.0
    """0: as fast as it goes."""
    is_linked: bool = False
    """Whether the broker's address is a link's."""
    network: Network = Network()
    seed: int = 1
    has_own_clients: bool = False
    """Whether each device has a connection of its own, as phones do: on one that many share,
    every lost segment makes all of them wait."""


class Head(msgspec.Struct):
    """The fields of an event that the feed needs."""

    device_id: str
    kind: str
    page_instance: str = ""
    ingest_time_ms: int = 0


class _Raw(NamedTuple):
    """An event, ready to be sent."""

    head: Head
    line: bytes
    key: bytes
    producer: KafkaProducer


def upload(feed: Feed) -> dict[str, Any]:
    """Send all; blocks until everything is acknowledged.

    Returns:
        ``exits``: [device, page instance, monotonic milliseconds at which the exit happened];
        ``cpu_s`` of this process meanwhile; ``sent`` records.
    """
    kind = LinkedModel if feed.is_linked else KafkaTunnelModel
    model = kind.model_validate(feed.tunnel)
    producers: dict[str, KafkaProducer] = {}
    events = []
    with Path(feed.source).open("rb") as file:
        for line, _ in zip(file, range(feed.events), strict=False):
            head = msgspec.json.decode(line, type=Head)
            client = head.device_id if feed.has_own_clients else ""
            if client not in producers:
                producers[client] = _connected(model)
            events.append(
                _Raw(head, line.rstrip(b"\n"), head.device_id.encode(), producers[client])
            )
    began_cpu_s, began_ms = time.process_time(), monotonic_ms()
    sent = _send(feed, model.topic, events, began_ms)
    for producer in producers.values():
        producer.flush(60)
    cpu_s = time.process_time() - began_cpu_s
    for producer in producers.values():
        producer.close()
    step_ms = 1e3 / feed.events_per_s if feed.events_per_s else 0.0
    exits = [
        [each.head.device_id, each.head.page_instance, began_ms + number * step_ms]
        for number, each in enumerate(events)
        if each.head.kind == "page_exit"
    ]
    return {"exits": exits, "cpu_s": cpu_s, "sent": sent}


def _connected(model: KafkaTunnelModel) -> KafkaProducer:
    producer = make_producer(model, model.codec, model.linger_ms, model.max_bytes)
    producer.partitions_for(model.topic)
    return producer


def _send(feed: Feed, topic: str, events: list[_Raw], began_ms: float) -> int:
    if feed.events_per_s:
        shop_ms = events[-1].head.ingest_time_ms - events[0].head.ingest_time_ms
        pace = shop_ms / 1e3 * feed.events_per_s / len(events) or 1.0
        plan = arrivals(len(events), feed.events_per_s, feed.network, feed.seed, pace)
    else:
        plan = ((0.0, number) for number in range(len(events)))
    sent = 0
    for at_s, number in plan:
        while (left_s := at_s - (monotonic_ms() - began_ms) / 1e3) > 0:
            time.sleep(min(left_s, _POLL_S))
        raw = events[number]
        raw.producer.send(
            topic, raw.line, raw.key, partition=0, timestamp_ms=raw.head.ingest_time_ms
        )
        sent += 1
    return sent


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[1], type=Feed)
    Path(asked.out).write_text(json.dumps(upload(asked)))
