"""Which topic has a name now, as a consumer of kafka-python knows it.

A topic that was deleted and made again has another id (Kafka 2.8 and newer). A consumer keeps to
itself what it knows of its cluster, but it takes the maker of its client, which tells.
"""

from threading import Event
from typing import Any, Final

_LOOK_S: Final = 5.0


def open_consumer(**options: Any) -> tuple[Any, Any]:
    """Make a consumer; returns it, and its cluster as it knows it; blocks."""
    from kafka import KafkaConsumer  # noqa: PLC0415 - an extra

    made: list[Any] = []

    def client(**given: Any) -> Any:
        made.append(KafkaConsumer.DEFAULT_CONFIG["kafka_client"](**given))
        return made[0]

    return KafkaConsumer(**options, kafka_client=client), made[0].cluster


def known_topic_id(cluster: Any, topic: str) -> str:
    """Return the id that the brokers said last, empty where they said none; asks nobody."""
    topic_id = cluster.topic_id(topic)
    # of a topic that is not there they say an id of zeros
    return str(topic_id) if topic_id is not None and topic_id.int else ""


def look_again(cluster: Any, topic: str) -> None:
    """Ask which topic has the name now; blocks for some seconds where no broker answers.

    Unanswered, what was known stays.
    """
    answered = Event()
    cluster.add_topic(topic)
    cluster.request_update().add_both(lambda _: answered.set())
    answered.wait(_LOOK_S)
