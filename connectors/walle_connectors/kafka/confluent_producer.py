"""librdkafka's producer: the driver ``confluent``.

It is as strict as kafka-python's. ``enable.gapless.guarantee`` ends it with the first batch that
fails for good, before it sends later records, and no record times out. If the topic refuses a
batch for its size, the whole batch fails. The next producer then sends one record at a time
(``is_careful``) until it finds the record at fault.
"""

from functools import partial
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as ConfluentClient

from walle_connectors.kafka.librdkafka import open_client
from walle_connectors.kafka.producing import (
    Handed,
    OnAck,
    OnRefusal,
    Outgoing,
    Refusal,
    TopicRecord,
)
from walle_connectors.kafka.topics import check_topics
from walle_stream.errors import TunnelError

_POLL_S: Final = 0.1
_PURGE_S: Final = 1.0
_BATCH_BYTES: Final = 256 * 1024
_ANY: Final = -1  # the partition of the key
_QUEUE_KIB: Final = 2**31 - 1  # the sender has its own limit


class ConfluentProducer:
    """confluent-kafka's producer as a ``Producer``."""

    def __init__(
        self,
        outgoing: Outgoing,
        on_ack: OnAck,
        on_refusal: OnRefusal,
        *,
        is_careful: bool = False,
    ) -> None:
        """Find the topic and start connecting; blocks.

        ``is_careful`` sends each record alone.

        Raises:
            TopicError: The topic is missing, or has another number of partitions.
            BrokerUnreachableError: No broker answers.
        """
        self._outgoing, self._topic, needed = outgoing, outgoing.name, outgoing.topic
        self._on_ack, self._on_refusal = on_ack, on_refusal
        self._is_careful = is_careful
        self._is_halted = False
        found = check_topics(outgoing.connection, [needed])
        self._partitions = found[self._topic].partitions
        self._client = open_client(
            ConfluentClient,
            outgoing.connection,
            {
                "acks": "all",
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "compression.type": outgoing.codec,
                "linger.ms": outgoing.linger_ms,
                "batch.size": min(needed.max_bytes, _BATCH_BYTES),
                "batch.num.messages": 1 if is_careful else 10_000,
                "message.max.bytes": needed.max_bytes,
                "message.timeout.ms": 0,  # no timeout, as with kafka-python
                "request.timeout.ms": 10_000,
                "partitioner": "murmur2_random",  # as Kafka's own clients place a key
                "queue.buffering.max.messages": 0,
                "queue.buffering.max.kbytes": _QUEUE_KIB,
            },
        )
        self._ended = Event()
        self._thread = Thread(target=self._poll, name=f"kafka-acks-{self._topic}", daemon=True)
        self._thread.start()

    def send(self, record: TopicRecord, partition: int | None, tag: Any) -> Handed:
        """Hand a record over; see ``Producer.send``.

        Raises:
            TopicError: The topic has no such partition.
        """
        if partition is not None and partition >= self._partitions:
            raise self._outgoing.no_partition(partition, f"it has {self._partitions}")
        if self._is_halted:
            return Handed.HALTED
        try:
            self._client.produce(
                self._topic,
                record.value,
                record.key,
                _ANY if partition is None else partition,
                on_delivery=partial(self._take_report, tag),
                headers=record.headers,
            )
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return Handed.TOO_LARGE
            # the producer failed for good meanwhile; failed records report themselves
            self._on_refusal(tag, Refusal(TunnelError(_said(error.args[0]))))
            return Handed.HALTED
        return Handed.QUEUED

    def _take_report(self, tag: Any, error: Any, _message: Any) -> None:
        if error is None:
            self._on_ack(tag)
            return
        is_too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        is_never_taken = error.code() == KafkaError.INVALID_RECORD
        failure = TunnelError(_said(error))
        self._on_refusal(tag, Refusal(failure, is_too_large, is_never_taken, self._is_careful))

    def _poll(self) -> None:
        while not self._ended.is_set():
            try:
                self._client.poll(_POLL_S)
            except KafkaException:
                # the producer failed for good; halting makes each queued record report why
                self.halt()

    def halt(self) -> None:
        """Stop sending; see ``Producer.halt``."""
        self._is_halted = True
        self._client.purge(blocking=False)

    def close(self, timeout_s: float) -> None:
        """Wait a little, then drop the rest; see ``Producer.close``."""
        if not self._is_halted and self._flush(timeout_s):
            self.halt()
        self._flush(_PURGE_S)
        self._ended.set()
        self._thread.join()

    def _flush(self, timeout_s: float) -> int:
        try:
            left: int = self._client.flush(timeout_s)
        except KafkaException:
            return len(self._client)
        return left


def _said(error: Any) -> str:
    return f"{error.name()}: {error.str()}"
