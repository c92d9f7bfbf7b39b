"""The producer of ``walle replay``: events in, and errors that say how far it came."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

from walle_connectors.kafka.connecting import StoppableProducer, close_producer
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.topics import NeededTopic, check_topics
from walle_stream.errors import BrokerUnreachableError, SourceError, TopicError

_FLUSH_S: Final = 120.0
_EVENT_MAX_BYTES: Final = 64 * 2**20  # how much it takes is the topic's to say


class EventSender:
    """Sends events to a topic, keyed by device. One thread; blocks."""

    def __init__(self, model: KafkaSourceModel) -> None:
        """Look for the topic; ``open`` connects.

        Raises:
            BrokerUnreachableError: No broker answers, or TLS is refused.
            TopicError: The topic is not there, or may not be seen.
        """
        # a producer would ask for a missing topic for a minute, or have the brokers make it
        check_topics(model, [NeededTopic(model.topic, "--topic")])
        self._model = model
        self._failures: list[Exception] = []
        self._producer: Any = None
        self.events = 0
        """That were handed to the producer."""
        self.bytes = 0
        """Of their values."""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Connect; at the end everything has arrived.

        Raises:
            SourceError: What the block raised; what came before it has arrived.
            BrokerUnreachableError: The brokers do not answer any more.
            TopicError: The topic does not take an event.
        """
        try:
            with self._errors():
                self._producer = StoppableProducer(
                    **self._model.client_options(),
                    acks="all",
                    enable_idempotence=True,
                    linger_ms=5,
                    max_request_size=_EVENT_MAX_BYTES,
                    allow_auto_create_topics=False,
                )
                try:
                    yield
                except SourceError as error:
                    self._flush()
                    raise SourceError(
                        f"{error}; the {self.events:,} events before it are sent"
                    ) from error
                self._flush()
        finally:
            if self._producer is not None:
                with suppress(KafkaError):
                    close_producer(self._producer, 1)

    def send(self, device_id: str, event: bytes) -> None:
        """Hand an event over; ``open`` translates the ``KafkaError`` of it, or of one before it."""
        future = self._producer.send(self._model.topic, event, key=device_id.encode())
        future.add_errback(self._failures.append)
        self.events += 1
        self.bytes += len(event)
        if self._failures:
            raise self._failures[0]

    def _flush(self) -> None:
        self._producer.flush(_FLUSH_S)
        if self._failures:
            raise self._failures[0]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        topic = self._model.topic
        try:
            yield
        except (KafkaTimeoutError, KafkaConnectionError) as error:
            raise BrokerUnreachableError(
                f"topic {topic!r}: the brokers do not answer ({error}): of {self.events:,} events "
                "the last may be missing; start them and run again"
            ) from error
        except KafkaError as error:
            raise TopicError(
                f"topic {topic!r} does not take event {self.events:,} or one shortly before it "
                f"({type(error).__name__}): see its max.message.bytes, and whether this client may "
                "WRITE to it; most of those before are sent",
                topic,
            ) from error
