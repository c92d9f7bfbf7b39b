"""librdkafka's transactions as a ``SinkLane``."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as ConfluentClient

from walle_connectors.kafka.librdkafka import open_client
from walle_connectors.kafka.producing import TopicRecord
from walle_connectors.kafka.sink_lane import too_large
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_stream.errors import SinkError

_ASK_S: Final = 10.0
_TRANSACTION_S: Final = 15.0


class ConfluentLane:
    """A transactional producer and the offset of a group."""

    def __init__(self, model: KafkaSinkModel, identity: str) -> None:
        """Connect and fence the lane's former owner; blocks."""
        self._model = model
        self._failures: list[KafkaError] = []
        transaction_ms = int(_TRANSACTION_S * 1000)
        self._producer: Any = open_client(
            ConfluentClient,
            model,
            {
                "transactional.id": identity,
                "transaction.timeout.ms": transaction_ms,
                "message.timeout.ms": transaction_ms,
                "compression.type": model.codec,
                "message.max.bytes": model.max_bytes,
                "linger.ms": 0,
                "partitioner": "murmur2_random",  # as Kafka's own clients place a key
            },
        )
        # only a consumer can ask a group and name it in a transaction; it does not join
        group = open_client(Consumer, model, {"group.id": identity, "enable.auto.commit": False})
        with self._errors(), closing(group):
            self._producer.init_transactions(_TRANSACTION_S)
            # this offset belongs to the lane, not to the records of partition 0
            [kept] = group.committed([TopicPartition(model.topic, 0)], _ASK_S)
            self._expect_none(kept.error)
            self.place = max(int(kept.offset), 0)
            self._group = group.consumer_group_metadata()

    def write(self, records: Sequence[TopicRecord], place: int) -> None:
        """Write a transaction; see ``SinkLane.write``."""
        producer, topic = self._producer, self._model.topic
        with self._errors():
            producer.begin_transaction()
            for each in records:
                producer.produce(
                    topic, each.value, each.key, headers=each.headers, on_delivery=self._take_report
                )
            kept = TopicPartition(topic, 0, place)
            producer.send_offsets_to_transaction([kept], self._group, _TRANSACTION_S)
            producer.flush(_TRANSACTION_S)
            self._expect_none(*self._failures)
            producer.commit_transaction(_TRANSACTION_S)
        self.place = place

    def _take_report(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            self._failures.append(error)

    @staticmethod
    def _expect_none(*failures: KafkaError | None) -> None:
        for each in filter(None, failures):
            raise KafkaException(each)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            said: KafkaError = error.args[0]
            if said.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise too_large(self._model.topic, self._model.max_bytes) from error
            text = f"topic {self._model.topic!r}: {said.name()}: {said.str()}"
            raise SinkError(text) from error

    def close(self) -> None:
        """Drop records in flight; see ``SinkLane.close``."""
        self._producer.purge()
        self._producer = None
