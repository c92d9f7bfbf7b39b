"""Port of client libraries for a sink's transactions.

``python_lane`` implements it with kafka-python, ``confluent_lane`` with librdkafka.
"""

from collections.abc import Sequence
from typing import Protocol

from walle_connectors.kafka.producing import TopicRecord
from walle_stream.errors import SinkError


class SinkLane(Protocol):
    """Writer of records and the place after them, both or neither. For one thread; blocks.

    The former owner of the lane cannot write any more. A failure raises ``WalleError``; close the
    lane then. ``too_large`` makes the error for a record that the topic refuses for its size.
    """

    @property
    def place(self) -> int:
        """The place after the last record written; 0 before the first."""

    def write(self, records: Sequence[TopicRecord], place: int) -> None:
        """Write the place and the records, each to the partition of its key."""

    def close(self) -> None:
        """Drop records in flight and disconnect."""


def too_large(topic: str, max_bytes: int) -> SinkError:
    """Return the error for a record that is too large."""
    return SinkError(
        f"a feature is too large for topic {topic!r}: raise its max.message.bytes and maxBytes "
        f"({max_bytes})"
    )
