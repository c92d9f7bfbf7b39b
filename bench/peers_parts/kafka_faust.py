"""Faust over Kafka: an agent with two tables on RocksDB, at least once.

It has tables of bytes through msgspec instead of Faust's JSON, small caches, a linger of 3 ms
(none for latencies), and room for 2,000 records in flight. With its defaults it is slower. Offsets
are committed as often as it does by default.
"""

import logging
import os
import signal
from typing import Any

import faust
import msgspec

from peers_parts.kafka_job import PARTITIONS, KafkaJob, told
from peers_parts.shop_features import Views
from peers_parts.shop_job import Visitor, Watermarks, decode_event

_ROCKS = {
    "driver": "rocksdict",
    "block_cache_size": 16 * 2**20,
    "write_buffer_size": 8 * 2**20,
    "max_open_files": 256,
}


def _make_app(job: KafkaJob) -> faust.App:
    app = faust.App(
        job.group,
        broker=f"kafka://{job.broker}",
        store="rocksdb://",
        datadir=job.folder,
        consumer_auto_offset_reset="earliest",
        processing_guarantee="at_least_once",
        producer_linger=0.0 if job.is_paced else 0.003,
        topic_partitions=PARTITIONS,
        topic_disable_leader=True,
        table_standby_replicas=0,
        web_enabled=False,
        autodiscover=False,
        worker_redirect_stdouts=False,
    )

    @app.on_partitions_assigned.connect
    async def on_assigned(app: Any, *_: Any, **__: Any) -> None:
        app.producer.buffer.max_messages = 2_000

    return app


def run(job: KafkaJob) -> None:
    """Make the features of a topic of events."""
    # its libraries' lines for debugging are made although nobody reads them: a tenth of it all
    logging.disable(logging.INFO)
    app = _make_app(job)
    raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw"}
    raw["value_serializer"] = "raw"
    source = app.topic(job.source, **raw)
    out = app.topic(job.out, **raw)
    plain = {"key_type": bytes, "value_type": bytes, "partitions": PARTITIONS, "options": _ROCKS}
    visitors, counts = app.Table("visitors", **plain), app.Table("counts", **plain)
    watermarks = Watermarks(PARTITIONS)
    encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode
    left = job.events

    @app.agent(source)
    async def sessions(stream: Any) -> None:
        nonlocal left
        async for value in stream:
            event = decode_event(value)
            key = event.device_id.encode()
            kept = visitors.get(key)
            visitor = Visitor() if kept is None else Visitor.restore(decode(kept))
            pages = visitor.accept(event, watermarks.of(event))
            visitors[key] = encode(visitor.export())
            if any(page.page_id == "item" for page in pages):
                views = Views(event.device_id)
                kept = counts.get(key)
                if kept is not None:
                    views.items, views.total = decode(kept)
                for line in views.lines(pages):
                    await out.send(key=key, value=line)
                counts[key] = encode([views.items, views.total])
            left -= 1
            if left == 0:
                # as its user would: what was processed is flushed and committed, then it ends
                os.kill(os.getpid(), signal.SIGTERM)

    faust.Worker(
        app, loglevel="WARN", quiet=True, redirect_stdouts=False
    ).execute_from_commandline()


if __name__ == "__main__":
    run(told())
