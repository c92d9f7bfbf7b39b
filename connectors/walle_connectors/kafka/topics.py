"""Topics: what a pipeline needs of them, what the cluster has, and making what is missing."""

import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from kafka.admin import ConfigResource
from kafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError

from walle_connectors.brokers import Connection
from walle_connectors.kafka.admin import admin_client, refusal
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.clock import monotonic_ms
from walle_stream.errors import TopicError

BATCH_OVERHEAD_BYTES: Final = 512
"""Room that a batch of one record needs beside it."""

_SEEN_MS: Final = 1_000  # so long a broker may not know yet of a topic that was just made
_AGAIN_S: Final = 0.1
_SETTINGS: Final = ("min.insync.replicas", "max.message.bytes", "retention.ms", "cleanup.policy")


class NeededTopic(msgspec.Struct, frozen=True):
    """What a pipeline needs."""

    name: str
    key: str
    """Where the YAML names it."""
    partitions: int = 0
    """0: any number."""
    max_bytes: int = 0
    """Largest record; 0 where it is not known."""


class FoundTopic(msgspec.Struct, frozen=True):
    """What the cluster has."""

    partitions: int
    replicas: int
    settings: dict[str, str]
    """Of those that matter here, by their names; empty where they were not asked for."""
    leaderless: int = 0
    """Partitions that nobody leads at the moment."""
    is_hidden: bool = False
    """Whether we may not look at it, nor learn whether it is there; all else is then empty."""


def tunnel_topics(model: KafkaTunnelModel, partitions: int = 0) -> list[NeededTopic]:
    """Return what a tunnel needs; 0 partitions when the pipeline's number is not known."""
    needed = [NeededTopic(model.topic, "spec.tunnel.topic", partitions, model.max_bytes)]
    if model.down_topic:
        down = NeededTopic(model.down_topic, "spec.tunnel.downTopic", partitions, model.max_bytes)
        needed.append(down)
    return needed


def check_topics(connection: Connection, needed: Sequence[NeededTopic]) -> None:
    """Check that topics are there, with the partitions that are needed; blocks.

    Raises:
        BrokerUnreachableError: No broker answers.
        TopicError: One is missing or has another number of partitions.
    """
    deadline_ms = monotonic_ms() + _SEEN_MS
    found = find_topics(connection, needed)
    while any(each.name not in found for each in needed) and monotonic_ms() < deadline_ms:
        time.sleep(_AGAIN_S)
        found = find_topics(connection, needed)
    for each in needed:
        problem = topic_problem(each, found.get(each.name))
        if problem:
            raise TopicError(problem, each.name)


def topic_problem(needed: NeededTopic, found: FoundTopic | None) -> str:
    """Return what is wrong with a topic, in one line; empty when nothing is."""
    if found is None:
        return f"topic {needed.name!r} ({needed.key}) does not exist: walle topics FILE --create"
    if found.is_hidden:
        return (
            f"topic {needed.name!r} ({needed.key}) may not be seen by this client, if it is there: "
            "see the access rights, it needs DESCRIBE"
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
    """Ask the cluster about topics; returns them by name, None for a missing one; blocks.

    Settings are a right of its own (DescribeConfigs), which a device need not have.

    Raises:
        BrokerUnreachableError: No broker answers.
        TopicError: It refuses to tell.
    """
    names = list(dict.fromkeys(each.name for each in needed))
    with admin_client(connection) as admin:
        told = admin.describe_topics(names)
        there = {topic["name"]: topic for topic in told if not topic["error_code"]}
        hidden = {
            topic["name"]
            for topic in told
            if topic["error_code"] == TopicAuthorizationFailedError.errno
        }
        settings: dict[str, dict[str, Any]] = {}
        if there and has_settings:
            resources = [ConfigResource("TOPIC", name, list(_SETTINGS)) for name in there]
            settings = admin.describe_configs(resources, config_filter="all").get("topic", {})
    return {
        name: _found(there[name], settings.get(name, {})) if name in there else None
        for name in names
        if name not in hidden
    } | {name: FoundTopic(0, 0, {}, is_hidden=True) for name in hidden}


def create_topics(
    connection: Connection, needed: Sequence[NeededTopic], replicas: int = -1
) -> None:
    """Make topics; one that is there already is left as it is; blocks.

    Each needs its number of partitions; -1 replicas are the cluster's default.

    Raises:
        BrokerUnreachableError: No broker answers.
        TopicError: The cluster refuses.
    """
    with admin_client(connection) as admin:
        for each in needed:
            options: dict[str, Any] = {
                "num_partitions": each.partitions or -1,
                "replication_factor": replicas,
                "configs": {},
            }
            if each.max_bytes:
                size = each.max_bytes + BATCH_OVERHEAD_BYTES
                options["configs"]["max.message.bytes"] = str(size)
            try:
                admin.create_topics({each.name: options}, wait_for_metadata=True)
            except TopicAlreadyExistsError:
                continue  # somebody else was quicker
            except KafkaError as error:
                raise TopicError(
                    f"topic {each.name!r} ({each.key}) cannot be made: {refusal(error)}", each.name
                ) from error


def _found(topic: dict[str, Any], settings: dict[str, Any]) -> FoundTopic:
    partitions = topic["partitions"]
    return FoundTopic(
        partitions=len(partitions),
        replicas=min((len(each["replica_nodes"]) for each in partitions), default=0),
        settings={
            name: str(settings[name]["value"])
            for name in _SETTINGS
            if settings.get(name, {}).get("value") is not None
        },
        leaderless=sum(each["leader_id"] < 0 for each in partitions),
    )
