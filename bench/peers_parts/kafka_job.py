"""The job of a contender over Kafka: one JSON object, its only argument. Also Python 3.12."""

import sys

import msgspec

from peers_parts.shop_job import Visitor

PARTITIONS = 4
"""Of all topics."""


class KafkaJob(msgspec.Struct):
    """A run over a topic of raw events."""

    broker: str
    """``HOST:PORT``, plain."""
    source: str
    """Raw events: JSON, keyed by device; the record's time is the ingest time."""
    out: str
    """For the features."""
    group: str
    """A fresh one; the changelog topics' names have it in them, too."""
    folder: str
    """For state on disk."""
    events: int
    """The job ends when it has taken this number; 0: never."""
    order_ms: int
    """How far behind a device's events may come."""

    @property
    def is_paced(self) -> bool:
        """Whether latencies are measured: then nobody lets records linger for more."""
        return not self.events


def told() -> KafkaJob:
    """Return what this process was told, and set it up."""
    job = msgspec.json.decode(sys.argv[1], type=KafkaJob)
    Visitor.order_ms = job.order_ms
    return job
