"""The way down over a topic: messages by device, in the partition that the device sends from."""

import logging
import secrets
from collections.abc import Sequence
from threading import Event, Lock
from typing import Any, Final

from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from kafka import KafkaConsumer, TopicPartition
from walle_connectors.kafka.connecting import BOOTSTRAP_MS, close_producer, connect, make_producer
from walle_connectors.kafka.topic_reader import TopicReader, within
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import EnvelopeError, TopicError, TunnelClosedError, TunnelError
from walle_stream.wire.envelope import DownlinkEnvelope, encode_downlink
from walle_stream.wire.message import decode_message, encode_message

_log = logging.getLogger(__name__)

_CLOSE_S: Final = 2.0
_WAIT_S: Final = 0.2
_POLL_MS: Final = 200


class KafkaDownlink:
    """Implements ``Downlink``: positions are offsets, the next one that is wanted."""

    def __init__(self, model: KafkaTunnelModel) -> None:
        """Read the partitions that are asked for; none without ``downTopic``."""
        self._reader = TopicReader(model, model.down_topic) if model.down_topic else None

    @property
    def log_id(self) -> str:
        """The topic's id; see ``HasLog.log_id``."""
        return "" if self._reader is None else self._reader.topic_id

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages that are here already; a topic that was made anew is a ``TopicError``."""
        if self._reader is None:
            return ()
        found = self._reader.take({partition: position}).get(partition, ())
        return [(each.offset + 1, _envelope(each)) for each in within(found, max_bytes)]

    def release(self, partition: int, position: int) -> None:
        """Do nothing: the topic's retention decides; see ``Downlink.release``."""

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()


def _envelope(record: Any) -> bytes:
    # what cannot be read goes on as it is: the device's side refuses and counts it
    try:
        return encode_downlink(decode_message(record.key, record.value, record.headers))
    except EnvelopeError:
        return record.value or b""


class _Numbers:
    # last numbers of a partition's devices, as the topic has them

    def __init__(self) -> None:
        self.incarnation = secrets.token_hex(8)
        self.last: dict[str, int] = {}


class KafkaDownlinkSender:
    """Implements ``DownlinkSender``; one per topic, or numbers would be given twice.

    Numbers go on behind those that the topic has. Where its retention has deleted some
    already, nobody knows which were given: a new incarnation begins at 1.
    """

    def __init__(self, model: KafkaTunnelModel) -> None:
        """Connect with the first message.

        Raises:
            TopicError: The model has no ``downTopic``.
        """
        if not model.down_topic:
            raise TopicError("nothing can be sent down: set spec.tunnel.downTopic")
        self._model = model
        self._topic = model.down_topic
        self._lock = Lock()
        self._stopped = Event()
        self._producer: Any = None
        self._numbers: dict[int, _Numbers] = {}

    def send(self, partition: int, device_id: str, kind: str, payload: bytes) -> int:
        """Send a message; blocks until it is durable; see ``DownlinkSender.send``.

        Raises:
            TunnelClosedError: The tunnel was closed; whether it was sent is not known.
            TunnelError: The broker refuses it.
        """
        with self._lock:
            numbers = self._numbers.get(partition) or self._read_numbers(partition)
            number = numbers.last.get(device_id, 0) + 1
            envelope = DownlinkEnvelope(device_id, number, numbers.incarnation, kind, payload)
            key, value, headers = encode_message(envelope)
            producer = self._connected()
            try:
                future = producer.send(self._topic, value, key, headers, partition=partition)
                is_answered = Event()
                future.add_both(lambda *_: is_answered.set())
                # only the broker's answer says that it is durable
                while not is_answered.wait(_WAIT_S) and not self._stopped.is_set():
                    pass
                if not is_answered.is_set():
                    raise self._closed()
                future.get(timeout=0)
            except (KafkaError, ValueError) as error:
                # whether it is in the topic is not known: look there before the next
                self._numbers.pop(partition, None)
                self._drop()
                raise self._refusal(error, device_id, len(payload)) from error
            numbers.last[device_id] = number
            return number

    def settle(self) -> None:
        """Do nothing: the broker has answered for each; see ``DownlinkSender.settle``."""

    def close(self) -> None:
        """Stop; a sender that waits gets ``TunnelClosedError``."""
        self._stopped.set()
        with self._lock:
            self._drop()

    def _closed(self) -> TunnelClosedError:
        return TunnelClosedError(f"the way down to topic {self._topic!r} is closed")

    def _refusal(self, error: Exception, device_id: str, size: int) -> TunnelError:
        if isinstance(error, MessageSizeTooLargeError | RecordListTooLargeError):
            return TunnelError(
                f"a message of {size} bytes for device {device_id!r} is too large: raise "
                f"max.message.bytes of topic {self._topic!r} and spec.tunnel.maxBytes "
                f"({self._model.max_bytes})"
            )
        return TunnelError(f"topic {self._topic!r} refuses a message: {error}: see walle doctor")

    def _connected(self) -> Any:
        if self._producer is None:
            model = self._model
            self._producer = connect(
                model,
                lambda: make_producer(model, model.codec, 0, model.max_bytes),
                self._stopped,
                f"the way down {self._topic!r}",
            )
        if self._producer is None or self._stopped.is_set():
            raise self._closed()
        return self._producer

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(producer, _CLOSE_S)

    def _read_numbers(self, partition: int) -> _Numbers:
        consumer = connect(self._model, self._consumer, self._stopped, f"reading {self._topic!r}")
        if consumer is None:
            raise self._closed()
        place = TopicPartition(self._topic, partition)
        try:
            if partition not in (consumer.partitions_for_topic(self._topic) or ()):
                raise TopicError(
                    f"topic {self._topic!r} has no partition {partition}: walle topics FILE "
                    "--create makes it",
                    self._topic,
                )
            consumer.assign([place])
            first = consumer.beginning_offsets([place])[place]
            end = consumer.end_offsets([place])[place]
            numbers = _Numbers()
            if first == 0 < end:
                consumer.seek(place, 0)
                self._scan(consumer, place, end, numbers)
        except KafkaError as error:
            raise TunnelError(
                f"topic {self._topic!r} cannot be read: {error}: see walle doctor"
            ) from error
        finally:
            consumer.close(autocommit=False, timeout_ms=1_000)
        self._numbers[partition] = numbers
        return numbers

    def _scan(self, consumer: Any, place: Any, end: int, numbers: _Numbers) -> None:
        while consumer.position(place) < end:
            if self._stopped.is_set():
                raise self._closed()
            for record in consumer.poll(timeout_ms=_POLL_MS).get(place, ()):
                try:
                    found = decode_message(record.key, record.value, record.headers)
                except EnvelopeError as error:
                    _log.warning("%s/%d@%d: %s", *place, record.offset, error)
                    continue
                if found.incarnation != numbers.incarnation:
                    numbers.incarnation, numbers.last = found.incarnation, {}
                numbers.last[found.device_id] = found.sequence_number

    def _consumer(self) -> Any:
        return KafkaConsumer(
            **self._model.client_options(),
            metrics_enabled=False,
            enable_auto_commit=False,
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
        )
