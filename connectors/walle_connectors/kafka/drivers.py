"""Choice of the library that talks to a cluster, by ``driver`` in a section of the YAML.

No other module chooses. An adapter is imported when it is chosen, so a process loads only the
libraries that its YAML names.
"""

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from walle_connectors.brokers import Connection, Driver
from walle_connectors.kafka.cluster import Cluster
from walle_connectors.kafka.producing import OnAck, OnRefusal, Outgoing, Producer
from walle_connectors.kafka.sink_lane import SinkLane
from walle_connectors.kafka.sink_model import KafkaSinkModel
from walle_connectors.kafka.source.fetching import Fetcher
from walle_connectors.kafka.source.group import Group
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_stream.errors import SpecFileError
from walle_stream.errors.extras import how_to_install

if TYPE_CHECKING:
    from walle_connectors.kafka.source.client import TopicClient

_EXTRAS: Final[dict[Driver, tuple[str, str]]] = {
    "kafka-python": ("kafka", "kafka"),
    "confluent": ("confluent_kafka", "confluent"),
}


def driver_problem(driver: Driver, key: str) -> str:
    """Return one line about the missing extra of the driver in ``key``; empty if installed."""
    module, extra = _EXTRAS[driver]
    if importlib.util.find_spec(module) is not None:
        return ""
    return f"{key}={driver} needs the extra {extra!r}: {how_to_install(extra)}"


def open_cluster(connection: Connection) -> Cluster:
    """Open a cluster for questions.

    Raises:
        SpecFileError: The library is not installed.
        BrokerUnreachableError: No broker answers, with a library that connects at once.
    """
    problem = driver_problem(connection.driver, "driver")
    if problem:
        raise SpecFileError(problem)
    if connection.driver == "kafka-python":
        from walle_connectors.kafka.python_cluster import PythonCluster  # noqa: PLC0415 - a driver

        return PythonCluster(connection)
    from walle_connectors.kafka.confluent_cluster import (  # noqa: PLC0415 - a driver
        ConfluentCluster,
    )

    return ConfluentCluster(connection)


def open_fetcher(client: "TopicClient", model: KafkaSourceModel, *, has_headers: bool) -> Fetcher:
    """Open a fetcher for partitions with no other reader; the caller keeps owning the client."""
    if model.driver == "kafka-python":
        from walle_connectors.kafka.source.python_fetcher import (  # noqa: PLC0415 - a driver
            PythonFetcher,
        )

        return PythonFetcher(client, _consumer(client), has_headers=has_headers)
    from walle_connectors.kafka.source.confluent import (  # noqa: PLC0415 - a driver
        ConfluentFetcher,
    )

    return ConfluentFetcher(model, has_headers=has_headers)


def open_group(client: "TopicClient", model: KafkaSourceModel, *, has_headers: bool) -> Group:
    """Open a member of the model's group, which joins later; ``client`` must be a member's."""
    if model.driver == "kafka-python":
        from walle_connectors.kafka.source.python_group import (  # noqa: PLC0415 - a driver
            PythonGroup,
        )

        consumer, interval_ms = _consumer(client), model.poll_interval_ms
        return PythonGroup(client, consumer, interval_ms, has_headers=has_headers)
    from walle_connectors.kafka.source.confluent_group import (  # noqa: PLC0415 - a driver
        ConfluentGroup,
    )

    return ConfluentGroup(model, has_headers=has_headers)


def open_producer(
    outgoing: Outgoing, on_ack: OnAck, on_refusal: OnRefusal, *, is_careful: bool = False
) -> Producer:
    """Find the topic and create a producer; blocks. ``is_careful`` sends each record alone.

    Raises:
        TopicError: The topic is missing, or has another number of partitions.
        BrokerUnreachableError: No broker answers.
    """
    if outgoing.connection.driver == "kafka-python":
        from walle_connectors.kafka.python_producer import (  # noqa: PLC0415 - a driver
            PythonProducer,
        )

        return PythonProducer(outgoing, on_ack, on_refusal, is_careful=is_careful)
    from walle_connectors.kafka.confluent_producer import (  # noqa: PLC0415 - a driver
        ConfluentProducer,
    )

    return ConfluentProducer(outgoing, on_ack, on_refusal, is_careful=is_careful)


def open_lane(model: KafkaSinkModel, identity: str) -> SinkLane:
    """Take over a lane of a sink from its former owner; blocks. For errors see ``SinkLane``."""
    if model.driver == "kafka-python":
        from walle_connectors.kafka.python_lane import PythonLane  # noqa: PLC0415 - a driver

        return PythonLane(model, identity)
    from walle_connectors.kafka.confluent_lane import ConfluentLane  # noqa: PLC0415 - a driver

    return ConfluentLane(model, identity)


def _consumer(client: "TopicClient") -> Any:
    # with kafka-python one consumer watches the topic, fetches, and is the member
    from walle_connectors.kafka.python_cluster import PythonCluster  # noqa: PLC0415 - a driver

    return client.cluster.consumer if isinstance(client.cluster, PythonCluster) else None
