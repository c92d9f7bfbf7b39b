"""Which topic has a name now, as a consumer of kafka-python knows it.

A topic that was deleted and made again has another id (Kafka 2.8 and newer).
"""

from threading import Event
from typing import Any, Final

_LOOK_S: Final = 5.0


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
