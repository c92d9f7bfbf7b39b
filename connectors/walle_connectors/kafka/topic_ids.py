"""Which topic has a name now, as a consumer of kafka-python knows it.

A topic that was deleted and made again has another id (Kafka 2.8 and newer). The library keeps
the ids, and has no public way to them.
"""

from contextlib import suppress
from typing import Any, Final

_LOOK_MS: Final = 5_000


def known_topic_id(consumer: Any, topic: str) -> str:
    """Return the id that the brokers said last, empty where they said none; asks nobody."""
    cluster: Any = getattr(consumer, "_cluster", None)
    topic_id = cluster.topic_id(topic) if hasattr(cluster, "topic_id") else None
    # of a topic that is not there they say an id of zeros
    return str(topic_id) if topic_id is not None and topic_id.int else ""


def look_again(consumer: Any, topic: str) -> None:
    """Ask which topic has the name now; blocks for some seconds where no broker answers.

    Unanswered, what was known stays.
    """
    from kafka.errors import KafkaError  # noqa: PLC0415 - an extra

    # the public way asks for all topics, and waits without an end
    cluster, net, manager = consumer._cluster, consumer._net, consumer._manager  # noqa: SLF001 - see above
    cluster.add_topic(topic)
    with suppress(KafkaError):
        net.run(manager.wait_for, cluster.request_update(), _LOOK_MS)
