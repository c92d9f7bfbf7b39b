"""What a sink asks of a client library: transactions.

``python_lane`` is kafka-python's, ``confluent_lane`` librdkafka's.
"""

from collections.abc import Sequence
from typing import Protocol

from walle_connectors.kafka.producing import TopicRecord
from walle_stream.errors import SinkError


class SinkLane(Protocol):
    """Writes records and the place behind them, together or not at all. One thread; blocks.

    The former owner of the lane cannot write any more. A failure is a ``WalleError``, and the lane
    is to be closed; ``too_large`` makes that of a record that the topic does not take.
    """

    @property
    def place(self) -> int:
        """The place behind what was written; 0 where nothing was."""

    def write(self, records: Sequence[TopicRecord], place: int) -> None:
        """Write records, each to the partition of its key, and the place."""

    def close(self) -> None:
        """Drop what is on its way, and disconnect."""


def too_large(topic: str, max_bytes: int) -> SinkError:
    """Return the error of a record that is too large."""
    return SinkError(
        f"a feature is too large for topic {topic!r}: raise its max.message.bytes and maxBytes "
        f"({max_bytes})"
    )
