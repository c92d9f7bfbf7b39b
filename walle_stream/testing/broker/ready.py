"""Readiness of a broker: a produced record has been consumed."""

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from walle_stream.errors import BrokerError

_TOPIC: Final = "walle-ready"
_POLL_S: Final = 0.05
_ROUND_S: Final = 2.0


def round_trip(options: Mapping[str, Any], *, copies: int = 1, timeout_s: float = 60.0) -> None:
    """Produce a record and consume it, and repeat that until it succeeds; blocks.

    A broker that accepts connections may still refuse records, and Kafka prints no line when it is
    ready.

    Args:
        options: Arguments of kafka-python's clients.
        copies: Replicas of the topic ``walle-ready``, which is made when missing.
        timeout_s: Longest wait.

    Raises:
        BrokerError: No attempt succeeded in time; the message has the last reason.
    """
    from kafka.errors import KafkaError  # noqa: PLC0415 - an extra

    deadline_s = time.monotonic() + timeout_s
    client = {
        **options,
        "bootstrap_timeout_ms": 1_000,
        "request_timeout_ms": 2_000,
        "reconnect_backoff_max_ms": 200,
    }
    while True:
        try:
            _once(client, copies)
        except (KafkaError, OSError, TimeoutError) as error:
            if time.monotonic() > deadline_s:
                raise BrokerError(
                    f"no record came back from {options.get('bootstrap_servers')} in "
                    f"{timeout_s:g} s ({type(error).__name__}: {error})"
                ) from error
            time.sleep(_POLL_S)
        else:
            return


def _once(client: Mapping[str, Any], copies: int) -> None:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # noqa: PLC0415 - an extra

    make_topic(client, _TOPIC, copies=copies)
    token = uuid.uuid4().bytes
    # the request timeout must be below the delivery timeout
    producer = KafkaProducer(**client, acks="all", delivery_timeout_ms=3_000, max_block_ms=3_000)
    try:
        sent = producer.send(_TOPIC, token, partition=0).get(timeout=4.0)
    finally:
        producer.close(timeout=1.0)
    consumer = KafkaConsumer(**client, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        partition = TopicPartition(_TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        deadline_s = time.monotonic() + _ROUND_S
        while time.monotonic() < deadline_s:
            for records in consumer.poll(timeout_ms=200).values():
                if any(record.value == token for record in records):
                    return
    finally:
        consumer.close()
    raise TimeoutError("the record was stored, but did not come back")


def make_topic(
    client: Mapping[str, Any],
    name: str,
    *,
    partitions: int = 1,
    copies: int = 1,
    settings: Mapping[str, str] | None = None,
) -> None:
    """Make a topic, unless it exists. Blocks.

    Args:
        client: Arguments of kafka-python's clients.
        name: Name of the topic.
        partitions: Number of partitions.
        copies: Replicas of each partition.
        settings: Settings of the topic, by key.

    Raises:
        KafkaError: An error of kafka-python: the broker refused or did not answer.
    """
    from kafka.admin import NewTopic  # noqa: PLC0415 - an extra
    from kafka.errors import TopicAlreadyExistsError  # noqa: PLC0415 - an extra

    from kafka import KafkaAdminClient  # noqa: PLC0415 - an extra

    admin = KafkaAdminClient(**client)
    try:
        admin.create_topics(
            [NewTopic(name, partitions, copies, topic_configs=dict(settings or {}))]
        )
    except TopicAlreadyExistsError:
        pass
    finally:
        admin.close()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Check every 50 ms until a condition holds; blocks.

    Args:
        condition: The condition; its exceptions pass through.
        what: Name of the condition for the message, such as "a new leader".
        timeout_s: Longest wait.

    Raises:
        BrokerError: The condition did not hold in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise BrokerError(f"waited {timeout_s:g} s for {what}")
        time.sleep(_POLL_S)
