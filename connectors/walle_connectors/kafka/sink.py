"""A sink: merged features as records of a topic, in the tunnel's format, in transactions.

Each lane has a transactional producer of its own, so who lost the lane cannot write any more. A
transaction holds records and, as the offset of a group, the place behind them. It is read before
the lane's first record: what was written is not written twice. Consumers read with
``isolation.level=read_committed``.
"""

from collections.abc import Iterator
from itertools import dropwhile
from typing import Any, Final

from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from kafka.structs import OffsetAndMetadata

from kafka import KafkaConsumer, TopicPartition
from walle_connectors.kafka.connecting import (
    BOOTSTRAP_MS,
    StoppableProducer,
    close_producer,
    make_producer,
)
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_connectors.kafka.topics import NeededTopic, check_topics
from walle_stream.errors import BrokerUnreachableError, EnvelopeError, SinkError, TopicError
from walle_stream.ports import MergedFeature, Written, first_part
from walle_stream.wire.record import RecordEnvelope, encode_record

_CLOSE_S: Final = 2.0
_ASK_MS: Final = 10_000


class _Lane:
    def __init__(self, producer: StoppableProducer, place: int) -> None:
        self.producer, self.place = producer, place


class KafkaSink:
    """Implements ``ports.FeatureSink``."""

    pause_s = 0.0

    def __init__(self, model: KafkaSinkModel, identity: str) -> None:
        """Ask nobody yet; ``identity`` names groups and transactions."""
        self._model, self._identity = model, identity
        self._lanes: dict[str, _Lane] = {}

    def write(self, lane: str, features: Iterator[MergedFeature]) -> Written:
        """Write up to 1,000 records in one transaction; see ``FeatureSink.write``.

        Raises:
            SinkError: None of them counts as written.
        """
        try:
            opened = self._lanes.get(lane) or self._open(lane)
            place = opened.place
            batch = first_part(dropwhile(lambda each: each.number < place, features))
            if batch:
                place = batch[-1].number + 1
                self._send(opened.producer, lane, batch, place)
                opened.place = place
        except (KafkaError, BrokerUnreachableError, TopicError, EnvelopeError) as error:
            self._drop(lane)
            raise SinkError(self._said(error)) from error
        return Written(place, place)

    def close(self) -> None:
        """Drop what is on its way; see ``FeatureSink.close``."""
        for lane in list(self._lanes):
            self._drop(lane)

    def _open(self, lane: str) -> _Lane:
        model, group = self._model, f"{self._identity}-{lane}"
        check_topics(model, [NeededTopic(model.topic, "spec.sinks")])
        producer = make_producer(model, model.codec, 0, model.max_bytes, group)
        try:
            producer.init_transactions()  # from now on nobody else writes this lane
            opened = self._lanes[lane] = _Lane(producer, self._place(group))
        except BaseException:
            producer.halt()
            raise
        return opened

    def _place(self, group: str) -> int:
        # a consumer's question waits for a coordinator, which the admin client's does not
        consumer = KafkaConsumer(
            **self._model.client_options(),
            group_id=group,
            enable_auto_commit=False,
            metrics_enabled=False,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
        )
        try:
            return consumer.committed(self._kept, timeout_ms=_ASK_MS) or 0
        finally:
            consumer.close(autocommit=False, timeout_ms=1_000)

    @property
    def _kept(self) -> Any:
        # it stands for a lane, whatever records that partition gets
        return TopicPartition(self._model.topic, 0)

    def _send(
        self, producer: StoppableProducer, lane: str, batch: list[MergedFeature], place: int
    ) -> None:
        producer.begin_transaction()
        sent = [producer.send(self._model.topic, *self._record(each)) for each in batch]
        offset = OffsetAndMetadata(place, "", -1)
        producer.send_offsets_to_transaction({self._kept: offset}, f"{self._identity}-{lane}")
        producer.flush()
        for each in sent:
            each.get(timeout=0)
        producer.commit_transaction()

    def _record(self, feature: MergedFeature) -> tuple[bytes, bytes, Any]:
        envelope = RecordEnvelope(
            device_id=feature.device_id,
            incarnation=feature.incarnation,
            partition=0,
            epoch=0,
            sequence_number=feature.sequence_number,
            task=feature.task,
            task_version=feature.task_version,
            event_time_ms=feature.event_time_ms,
            encoding=feature.encoding,
        )
        key, value, headers = encode_record(envelope, feature.feature, self._model.format)
        return value, key, headers

    def _drop(self, lane: str) -> None:
        opened = self._lanes.pop(lane, None)
        if opened is not None:
            close_producer(opened.producer, _CLOSE_S)

    def _said(self, error: Exception) -> str:
        topic = self._model.topic
        if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
            return (
                f"a feature is too large for topic {topic!r}: raise its max.message.bytes and "
                f"maxBytes ({self._model.max_bytes})"
            )
        return f"topic {topic!r}: {error or type(error).__name__}"
