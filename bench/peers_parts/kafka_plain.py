"""A plain loop over a consumer, with kafka-python or confluent-kafka: nothing survives it.

What reading, the job itself and writing cost at least: dicts for the state, no commit.
"""

import sys
from collections.abc import Iterator
from typing import Any

from peers_parts.kafka_job import PARTITIONS, KafkaJob, told
from peers_parts.shop_features import Views
from peers_parts.shop_job import Visitor, Watermarks, decode_event

_BATCH = 1_000


def run(job: KafkaJob, values: Iterator[bytes], send: Any) -> None:
    """Make the features of a topic of events.

    Args:
        job: What to do.
        values: Of the topic.
        send: Takes the key and the line of a feature.
    """
    devices: dict[str, tuple[Visitor, Views]] = {}
    watermarks = Watermarks(PARTITIONS)
    for taken, value in enumerate(values, 1):
        event = decode_event(value)
        device = devices.get(event.device_id)
        if device is None:
            device = devices[event.device_id] = (Visitor(), Views(event.device_id))
        visitor, views = device
        pages = visitor.accept(event, watermarks.of(event))
        if pages:
            for line in views.lines(pages):
                send(event.device_id.encode(), line)
        if taken == job.events:
            return


def _with_confluent(job: KafkaJob) -> None:
    from confluent_kafka import Consumer, Producer  # noqa: PLC0415 - one of the two

    settings = {"bootstrap.servers": job.broker}
    consumer = Consumer(
        {**settings, "group.id": job.group, "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    consumer.subscribe([job.source])
    producer = Producer({**settings, "linger.ms": 0} if job.is_paced else settings)

    def values() -> Iterator[bytes]:
        while True:
            for message in consumer.consume(_BATCH, 0.01):
                if message.error() is None:
                    yield message.value()

    def send(key: bytes, line: bytes) -> None:
        producer.produce(job.out, line, key)
        producer.poll(0)

    run(job, values(), send)
    producer.flush()
    consumer.close()


def _with_kafka_python(job: KafkaJob) -> None:
    from kafka import KafkaConsumer, KafkaProducer  # noqa: PLC0415 - one of the two

    consumer = KafkaConsumer(
        job.source,
        bootstrap_servers=job.broker,
        group_id=job.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    linger_ms = 0 if job.is_paced else 5
    producer = KafkaProducer(bootstrap_servers=job.broker, acks="all", linger_ms=linger_ms)

    def values() -> Iterator[bytes]:
        while True:
            # long enough to join in: a join that ends between two polls is begun anew
            for records in consumer.poll(10_000, max_records=_BATCH).values():
                for record in records:
                    yield record.value

    run(job, values(), lambda key, line: producer.send(job.out, line, key))
    producer.flush()
    producer.close()
    consumer.close()


if __name__ == "__main__":
    (_with_confluent if "confluent" in sys.argv[2:] else _with_kafka_python)(told())
