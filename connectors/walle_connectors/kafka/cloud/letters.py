"""Sending of records that the cloud side refused to the pipeline's topic of dead letters.

A dead letter reaches its topic before the refused record's offset reaches the table. After a crash
between the two, the letter is sent again with the same idempotency key. While the topic's brokers
are down the worker waits, so nothing piles up.
"""

from collections.abc import Sequence
from threading import Event
from typing import Final

from walle_connectors.kafka.cloud.records import Refused
from walle_connectors.kafka.dead_letters.sink import KafkaDeadLetterSink
from walle_stream.errors import StopTimeoutError
from walle_stream.ports import KeptLetter

_LOOK_S: Final = 0.005


class RefusedRecords:
    """Sender of refused records as dead letters. For one thread."""

    def __init__(
        self, sink: KafkaDeadLetterSink, pipeline: str, group: str, stopped: Event
    ) -> None:
        """Take ownership of the sink.

        ``group`` takes the place of a data directory's incarnation. ``stopped`` ends any wait.
        """
        self._sink = sink
        self._pipeline = pipeline
        self._group = group
        self._stopped = stopped

    def put(self, partition: int, refused: Sequence[Refused]) -> None:
        """Send dead letters and wait without a timeout until the topic has acknowledged them.

        Raises:
            StopTimeoutError: The worker is stopping; the next run sends the letters again.
            TunnelError: The letters cannot be sent.
        """
        waiting = {each.offset for each in refused}
        for each in refused:
            self._sink.send(
                KeptLetter(
                    letter=each.letter,
                    pipeline=self._pipeline,
                    incarnation=self._group,
                    partition=partition,
                    number=each.offset,
                )
            )
        while waiting := waiting.difference(self._sink.acks(partition)):
            if self._stopped.wait(_LOOK_S):
                raise StopTimeoutError("the worker ends while dead letters wait for their topic")

    def close(self) -> None:
        """Disconnect."""
        self._sink.close()
