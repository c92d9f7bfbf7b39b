"""Devices that do nothing but upload: raw events into a topic, on a schedule. A process.

    python -m ipv_parts.feeding JSON

JSON is a ``Feed``. The schedule is an open loop as in ``latency_parts.paced``: what the
client is late with counts as waiting.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
from tunnel_parts.network import LinkedModel

from ipv_parts.network import Network, arrivals
from kafka import KafkaProducer
from walle_connectors.kafka.connecting import make_producer
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


class Head(msgspec.Struct):
    """What is needed of an event."""

    device_id: str
    kind: str
    page_instance: str = ""
    ingest_time_ms: int = 0


def upload(feed: Feed) -> dict[str, Any]:
    """Send all; blocks until everything is acknowledged.

    Args:
        feed: What.

    Returns:
        ``exits``: [device, page instance, monotonic milliseconds at which the exit happened];
        ``cpu_s`` of this process meanwhile; ``sent`` records.
    """
    kind = LinkedModel if feed.is_linked else KafkaTunnelModel
    model = kind.model_validate(feed.tunnel)
    with Path(feed.source).open("rb") as file:
        lines = [line.rstrip(b"\n") for line, _ in zip(file, range(feed.events), strict=False)]
    heads = [msgspec.json.decode(line, type=Head) for line in lines]
    keys = [head.device_id.encode() for head in heads]
    producer = make_producer(model, model.codec, model.linger_ms, model.max_bytes)
    producer.partitions_for(model.topic)
    began_cpu_s, began_ms = time.process_time(), monotonic_ms()
    sent = _send(feed, producer, model.topic, lines, keys, heads, began_ms)
    producer.flush(60)
    cpu_s = time.process_time() - began_cpu_s
    producer.close()
    step_ms = 1e3 / feed.events_per_s if feed.events_per_s else 0.0
    exits = [
        [head.device_id, head.page_instance, began_ms + number * step_ms]
        for number, head in enumerate(heads)
        if head.kind == "page_exit"
    ]
    return {"exits": exits, "cpu_s": cpu_s, "sent": sent}


def _send(
    feed: Feed,
    producer: KafkaProducer,
    topic: str,
    lines: list[bytes],
    keys: list[bytes],
    heads: list[Head],
    began_ms: float,
) -> int:
    if feed.events_per_s:
        plan = arrivals(len(lines), feed.events_per_s, feed.network, feed.seed)
    else:
        plan = ((0.0, number) for number in range(len(lines)))
    sent = 0
    for at_s, number in plan:
        while (left_s := at_s - (monotonic_ms() - began_ms) / 1e3) > 0:
            time.sleep(min(left_s, _POLL_S))
        producer.send(
            topic,
            lines[number],
            keys[number],
            partition=0,
            timestamp_ms=heads[number].ingest_time_ms,
        )
        sent += 1
    return sent


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[1], type=Feed)
    Path(asked.out).write_text(json.dumps(upload(asked)))
