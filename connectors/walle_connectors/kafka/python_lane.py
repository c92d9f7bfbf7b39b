"""kafka-python's transactions as a ``SinkLane``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from walle_connectors.kafka.producing import TopicRecord
from walle_connectors.kafka.python_producer import BOOTSTRAP_MS, close_producer, make_producer
from walle_connectors.kafka.sink_lane import too_large
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_stream.errors import SinkError

_CLOSE_S: Final = 2.0
_ASK_MS: Final = 10_000


class PythonLane:
    """A transactional producer and the offset of a group."""

    def __init__(self, model: KafkaSinkModel, identity: str) -> None:
        """Connect and fence the lane's former owner; blocks."""
        self._model, self._identity = model, identity
        # this offset belongs to the lane, not to the records of partition 0
        self._kept = TopicPartition(model.topic, 0)
        with self._errors():
            self._producer = make_producer(model, model.codec, 0, model.max_bytes, identity)
            try:
                self._producer.init_transactions()  # from now on this lane is ours
                self.place = self._committed()
            except BaseException:
                self._producer.halt()
                raise

    def _committed(self) -> int:
        # a consumer's request waits for a coordinator, unlike the admin client's
        consumer = KafkaConsumer(
            **self._model.client_options(),
            group_id=self._identity,
            enable_auto_commit=False,
            metrics_enabled=False,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
        )
        try:
            return consumer.committed(self._kept, timeout_ms=_ASK_MS) or 0
        finally:
            consumer.close(autocommit=False, timeout_ms=1_000)

    def write(self, records: Sequence[TopicRecord], place: int) -> None:
        """Write a transaction; see ``SinkLane.write``."""
        topic, producer = self._model.topic, self._producer
        with self._errors():
            producer.begin_transaction()
            sent = [producer.send(topic, each.value, each.key, each.headers) for each in records]
            offset: Any = OffsetAndMetadata(place, "", -1)
            producer.send_offsets_to_transaction({self._kept: offset}, self._identity)
            producer.flush()
            for each in sent:
                each.get(timeout=0)
            producer.commit_transaction()
        self.place = place

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            raise too_large(self._model.topic, self._model.max_bytes) from error
        except KafkaError as error:
            text = f"topic {self._model.topic!r}: {error or type(error).__name__}"
            raise SinkError(text) from error

    def close(self) -> None:
        """Drop records in flight; see ``SinkLane.close``."""
        close_producer(self._producer, _CLOSE_S)
