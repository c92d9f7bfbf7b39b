"""When a broker is ready: a record that was produced has been consumed."""

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from walle_stream.errors import BrokerError

_TOPIC: Final = "walle-ready"
_POLL_S: Final = 0.05
_ROUND_S: Final = 2.0


def round_trip(options: Mapping[str, Any], *, copies: int = 1, timeout_s: float = 60.0) -> None:
    """Produce a record and consume it, again and again until that works; blocks.

    A broker that accepts connections may still refuse records, and Kafka prints nothing
    that would tell.

    Args:
        options: What kafka-python's clients are made with.
        copies: Of the topic ``walle-ready``, which is made when missing.
        timeout_s: Longest wait.

    Raises:
        BrokerError: It did not work in time; the message has the last reason.
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
    # request_timeout_ms must be below the time that a record may take as a whole
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
    """Make a topic; one that is there already is left as it is. Blocks.

    Args:
        client: What kafka-python's clients are made with.
        name: The topic's.
        partitions: How many.
        copies: Of each partition.
        settings: Of the topic, by key.

    Raises:
        KafkaError: kafka-python's: the broker refused it, or did not answer.
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
    """Ask every 50 ms until a condition holds; blocks.

    Args:
        condition: Asked; what it raises is raised.
        what: For the message: "a new leader".
        timeout_s: Longest wait.

    Raises:
        BrokerError: It did not hold in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise BrokerError(f"waited {timeout_s:g} s for {what}")
        time.sleep(_POLL_S)
