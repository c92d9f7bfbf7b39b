"""The bench's topics: made, filled with raw events, read out, deleted. kafka-python."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from kafka.admin import KafkaAdminClient

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from peers_parts.kafka_job import PARTITIONS
from walle_stream.testing.broker import make_topic
from walle_stream.types import partition_of

_FLUSH_S: Final = 300.0
_LATER_MS: Final = 3_600_000
# the simulated time is long past: no retention may take what is read
_SETTINGS: Final = {"retention.ms": "-1", "message.timestamp.type": "CreateTime"}


class RawRecord(NamedTuple):
    """An event as it goes into a topic."""

    device_id: str
    time_ms: int
    """Of its arrival in the simulated network."""
    line: bytes

    @property
    def partition(self) -> int:
        """The one of its device, as ``walle_stream`` places devices."""
        return partition_of(self.device_id, PARTITIONS)


class _Head(msgspec.Struct):
    device_id: str
    ingest_time_ms: int


def raw_records(path: Path, *, has_markers: bool = True) -> Iterator[RawRecord]:
    """Iterate over a file of events in the order of arrival.

    Args:
        path: JSON Lines.
        has_markers: Whether each device has one more event an hour after all others: then
            every page has ended by itself, and nobody needs to know where the input ends.
    """
    decode = msgspec.json.Decoder(_Head).decode
    last_ms = 0
    devices: dict[str, None] = {}
    with path.open("rb") as file:
        for line in file:
            head = decode(line)
            devices[head.device_id] = None
            last_ms = max(last_ms, head.ingest_time_ms)
            yield RawRecord(head.device_id, head.ingest_time_ms, line.rstrip(b"\n"))
    if has_markers:
        for device_id in devices:
            yield _marker(device_id, last_ms + _LATER_MS)


def _marker(device_id: str, time_ms: int) -> RawRecord:
    fields = {"device_id": device_id, "id": "later", "kind": "click", "page_id": ""}
    times = {"page_instance": "", "event_time_ms": time_ms, "ingest_time_ms": time_ms}
    return RawRecord(device_id, time_ms, json.dumps({**fields, **times}).encode())


class BenchTopics:
    """The topics of one bench, whose names begin alike."""

    def __init__(self, broker: str, prefix: str) -> None:
        """Begin without topics.

        Args:
            broker: ``HOST:PORT``.
            prefix: Of their names; nobody else's have it in them.
        """
        self.broker = broker
        self._prefix = prefix
        self._options: dict[str, Any] = {"bootstrap_servers": broker}

    def make(self, name: str) -> str:
        """Make a topic and return its whole name."""
        whole = f"{self._prefix}-{name}"
        make_topic(self._options, whole, partitions=PARTITIONS, settings=_SETTINGS)
        return whole

    def producer(self, linger_ms: int) -> Any:
        """Return a producer that waits for the broker's acknowledgement."""
        return KafkaProducer(**self._options, acks="all", linger_ms=linger_ms)

    def load(self, topic: str, records: Iterable[RawRecord]) -> int:
        """Write raw events and return how many; blocks."""
        producer = self.producer(20)
        count = 0
        for count, each in enumerate(records, 1):  # noqa: B007 - the last one is returned
            send(producer, topic, each)
        producer.flush(_FLUSH_S)
        producer.close()
        return count

    def consumer(self, topic: str) -> Any:
        """Return a consumer of the whole topic from its beginning."""
        consumer = KafkaConsumer(**self._options, enable_auto_commit=False)
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        return consumer

    def read(self, topic: str) -> Iterator[Any]:
        """Iterate over the records that a topic has now; blocks."""
        consumer = self.consumer(topic)
        places = list(consumer.assignment())
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(500).values():
                yield from records
        consumer.close()

    def delete(self, part: str = "") -> None:
        """Delete the bench's topics, others' changelogs among them.

        Args:
            part: Only those that have this in their names.
        """
        admin = KafkaAdminClient(**self._options)
        names = [n for n in admin.list_topics() if self._prefix in n and part in n]
        if names:
            admin.delete_topics(names, raise_errors=False)
        admin.close()


def send(producer: Any, topic: str, record: RawRecord) -> None:
    """Hand a raw event to a producer."""
    producer.send(
        topic,
        record.line,
        record.device_id.encode(),
        partition=record.partition,
        timestamp_ms=record.time_ms,
    )
