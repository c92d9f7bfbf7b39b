"""How scripts on the control machine reach the brokers, and how many copies these keep."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition

_BROKERS: Final = Path(__file__).with_name("brokers").read_text().split()

CLIENT: Final[dict[str, Any]] = {
    "bootstrap_servers": _BROKERS,
    "security_protocol": "SSL",
    "ssl_cafile": "/kit/pipeline/ca.pem",
}
"""Options of kafka-python's clients."""

COPIES: Final = len(_BROKERS)


def partitions(topic: str) -> list[int]:
    """Return the partitions of a topic."""
    consumer = KafkaConsumer(**CLIENT, group_id=None)
    found = sorted(consumer.partitions_for_topic(topic) or ())
    consumer.close()
    return found


def records(topic: str) -> Iterator[Any]:
    """Yield all records of a topic, those of a partition in their order."""
    consumer = KafkaConsumer(**CLIENT, group_id=None, enable_auto_commit=False)
    places = [TopicPartition(topic, each) for each in partitions(topic)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    ends = consumer.end_offsets(places)
    while any(consumer.position(place) < ends[place] for place in places):
        for found in consumer.poll(timeout_ms=200).values():
            yield from found
    consumer.close()
