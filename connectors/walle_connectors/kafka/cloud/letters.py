"""Records that the cloud side refused, into the pipeline's topic of dead letters.

A letter is in its topic before the refused record's offset is in the table, so a death in
between sends it again, with the same idempotency key. While the topic's brokers are away the
worker waits: nothing piles up.
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
    """Sends letters. One thread."""

    def __init__(
        self, sink: KafkaDeadLetterSink, pipeline: str, group: str, stopped: Event
    ) -> None:
        """Begin; takes the sink.

        The group that refuses is what a data directory's incarnation is elsewhere; ``stopped`` ends
        the waiting.
        """
        self._sink = sink
        self._pipeline = pipeline
        self._group = group
        self._stopped = stopped

    def put(self, partition: int, refused: Sequence[Refused]) -> None:
        """Send letters, and wait until the topic has them, however long that takes.

        Raises:
            StopTimeoutError: The worker ends; they come again.
            TunnelError: They cannot be sent.
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
