"""Comparison of needed topics with a cluster's topics, and creation of missing topics."""

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from walle_connectors.brokers import Connection
from walle_connectors.kafka.cluster import FoundTopic, NeededTopic
from walle_connectors.kafka.drivers import open_cluster
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import TopicError

BATCH_OVERHEAD_BYTES: Final = 512
"""Overhead of a batch with one record."""

_SETTINGS: Final = ("min.insync.replicas", "max.message.bytes", "retention.ms", "cleanup.policy")


def tunnel_topics(model: KafkaTunnelModel, partitions: int = 0) -> list[NeededTopic]:
    """Return the topics that a tunnel needs; 0 partitions if the pipeline's number is unknown."""
    needed = [NeededTopic(model.topic, "spec.tunnel.topic", partitions, model.max_bytes)]
    if model.down_topic:
        down = NeededTopic(model.down_topic, "spec.tunnel.downTopic", partitions, model.max_bytes)
        needed.append(down)
    return needed


def check_topics(connection: Connection, needed: Sequence[NeededTopic]) -> dict[str, FoundTopic]:
    """Check that topics exist with the needed partitions; blocks.

    Returns the cluster's topics by name.

    Raises:
        BrokerUnreachableError: No broker answers.
        TopicError: A topic is missing or has another number of partitions.
    """
    found = find_topics(connection, needed)
    for each in needed:
        problem = topic_problem(each, found[each.name])
        if problem:
            raise TopicError(problem, each.name)
    return {name: topic for name, topic in found.items() if topic is not None}


def topic_problem(needed: NeededTopic, found: FoundTopic | None) -> str:
    """Return a topic's problem in one line; empty if there is none."""
    if found is None:
        return f"topic {needed.name!r} ({needed.key}) does not exist: walle topics FILE --create"
    if found.is_hidden:
        return (
            f"topic {needed.name!r} ({needed.key}) is missing, or this client has no access to it: "
            "see the access rights, the client needs DESCRIBE"
        )
    if needed.partitions and found.partitions != needed.partitions:
        return (
            f"topic {needed.name!r} ({needed.key}) has {found.partitions} partitions, the pipeline "
            f"{needed.partitions}: set spec.runtime.partitions={found.partitions}, or name "
            "another topic"
        )
    return ""


def find_topics(
    connection: Connection, needed: Sequence[NeededTopic], *, has_settings: bool = False
) -> dict[str, FoundTopic | None]:
    """Return the cluster's topics by name, None for a missing topic; blocks.

    Settings need a right of their own (DescribeConfigs), which a device need not have.

    Raises:
        BrokerUnreachableError: No broker answers.
        TopicError: The cluster refuses the request.
    """
    names = dict.fromkeys(each.name for each in needed)
    with closing(open_cluster(connection)) as cluster:
        return names | cluster.describe(list(names), _SETTINGS if has_settings else ())


def expect_kept(connection: Connection, needed: NeededTopic) -> dict[str, str]:
    """Refuse a compacted topic and return its settings, empty without the right; blocks.

    Raises:
        BrokerUnreachableError: No broker answers.
        TopicError: The topic is compacted.
    """
    try:
        found = find_topics(connection, [needed], has_settings=True)[needed.name]
    except TopicError:
        return {}  # settings need a right of their own
    settings = found.settings if found else {}
    if "compact" in settings.get("cleanup.policy", ""):
        raise TopicError(
            f"topic {needed.name!r} ({needed.key}) is compacted: it keeps only the last record of "
            "each device and refuses records without a key; set cleanup.policy=delete",
            needed.name,
        )
    return settings


def create_topics(
    connection: Connection, needed: Sequence[NeededTopic], replicas: int = -1
) -> None:
    """Create topics and leave existing ones unchanged; blocks.

    Each topic gets its needed number of partitions; -1 replicas are the cluster's default.

    Raises:
        BrokerUnreachableError: No broker answers.
        TopicError: The cluster refuses.
    """
    with closing(open_cluster(connection)) as cluster:
        for each in needed:
            size = each.max_bytes + BATCH_OVERHEAD_BYTES
            settings = {"max.message.bytes": str(size)} if each.max_bytes else {}
            try:
                cluster.create(each.name, each.partitions or -1, replicas, settings)
            except TopicError as error:
                raise TopicError(
                    f"topic {each.name!r} ({each.key}) cannot be created: {error}", each.name
                ) from error
