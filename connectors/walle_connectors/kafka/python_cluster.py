"""kafka-python's clients as a ``Cluster``.

Each administrative question makes an admin client of its own, since such questions are rare. The
watched topic has one consumer, which also fetches, so its metadata agree with its records.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from threading import Event
from typing import Any, Final

from kafka.admin import ConfigResource
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from kafka import KafkaConsumer, TopicPartition, errors
from walle_connectors.brokers import Connection
from walle_connectors.kafka.admin import ASK_MS, admin_client
from walle_connectors.kafka.cluster import ASK_S, FoundTopic, Place, TopicIdentity
from walle_connectors.kafka.python_errors import source_errors
from walle_connectors.kafka.source.model import KafkaSourceModel

_CLOSE_MS: Final = 2_000
_MIB: Final = 2**20


class PythonCluster:
    """Implements ``Cluster``; it contacts no broker before the first question."""

    def __init__(self, connection: Connection) -> None:
        """Store the connection without opening it."""
        self._connection = connection
        self.consumer: Any = None
        """Consumer of the watched topic; on request a member of its group."""

    def brokers(self) -> int:
        """Return the number of brokers; see ``Cluster.brokers``."""
        with admin_client(self._connection) as admin:
            return len(admin.describe_cluster()["brokers"])

    def describe(
        self, names: Collection[str], settings: Sequence[str] = ()
    ) -> dict[str, FoundTopic]:
        """Return topics; see ``Cluster.describe``."""
        with admin_client(self._connection) as admin:
            told = {topic["name"]: topic for topic in admin.describe_topics(list(names))}
            there = [name for name, topic in told.items() if not topic["error_code"]]
            configs: dict[str, dict[str, Any]] = {}
            if there and settings:
                resources = [ConfigResource("TOPIC", name, list(settings)) for name in there]
                configs = admin.describe_configs(resources, config_filter="all").get("topic", {})
        found = {name: _found(told[name], configs.get(name, {}), settings) for name in there}
        denied = errors.TopicAuthorizationFailedError.errno
        hidden = [name for name, topic in told.items() if topic["error_code"] == denied]
        return found | dict.fromkeys(hidden, FoundTopic.hidden())

    def create(
        self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]
    ) -> None:
        """Create a topic; see ``Cluster.create``."""
        options = {
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": dict(settings),
        }
        with admin_client(self._connection) as admin, suppress(errors.TopicAlreadyExistsError):
            admin.create_topics({name: options}, wait_for_metadata=True)

    def grow(self, name: str, partitions: int, *, is_trial: bool) -> None:
        """Give a topic more partitions; see ``Cluster.grow``."""
        with admin_client(self._connection) as admin:
            admin.create_partitions({name: partitions}, validate_only=is_trial)

    def delete(self, name: str) -> None:
        """Delete a topic; see ``Cluster.delete``."""
        with admin_client(self._connection) as admin:
            admin.delete_topics([name])

    def members(self, group: str) -> int:
        """Return the number of a group's members; see ``Cluster.members``."""
        with admin_client(self._connection) as admin:
            return len(admin.describe_groups([group]).get(group, {}).get("members") or ())

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """Return a group's offsets; see ``Cluster.committed``."""
        with admin_client(self._connection) as admin:
            found = admin.list_group_offsets([group]).get(group) or {}
        return {
            place.partition: (each.offset, each.metadata or "")
            for place, each in found.items()
            if place.topic == topic and each.offset >= 0
        }

    # The watched topic

    def watch(
        self, model: KafkaSourceModel, metadata_ms: int, *, is_member: bool
    ) -> TopicIdentity | None:
        """Find a topic and keep watching it; see ``Cluster.watch``."""
        self._model = model
        options = self._connection.client_options() | _consumer_options(model)
        if is_member:
            options |= _member_options(model)
        made: list[Any] = []

        def client(**given: Any) -> Any:
            # the consumer hides its cluster metadata, but its client exposes them
            made.append(options["kafka_client"](**given))
            return made[0]

        with source_errors(model.topic):
            self.consumer = KafkaConsumer(
                **(options | {"kafka_client": client}), metadata_max_age_ms=metadata_ms
            )
            self._metadata = made[0].cluster
            return self.known if self.consumer.partitions_for_topic(model.topic) else None

    @property
    def known(self) -> TopicIdentity:
        """The topic as last described; see ``Cluster.known``."""
        topic, told = self._model.topic, self._metadata
        numbers, topic_id = told.partitions_for_topic(topic) or (), told.topic_id(topic)
        # the id of a missing topic is zeros
        text = str(topic_id) if topic_id is not None and topic_id.int else ""
        return TopicIdentity(len(numbers), told.cluster_id or "", text)

    def look_again(self) -> None:
        """Refresh the topic's description now; see ``Cluster.look_again``."""
        answered = Event()
        self._metadata.add_topic(self._model.topic)
        self._metadata.request_update().add_both(lambda _: answered.set())
        answered.wait(ASK_S)

    def offsets(self, numbers: Collection[int], at_ms: int) -> dict[int, int]:
        """Return offsets in partitions; see ``Cluster.offsets``."""
        places = [TopicPartition(self._model.topic, number) for number in numbers]
        with source_errors(self._model.topic):
            if at_ms >= 0:
                wanted = dict.fromkeys(places, at_ms)
                told = self.consumer.offsets_for_times(wanted, timeout_ms=ASK_MS)
                found = {place: -1 if each is None else each.offset for place, each in told.items()}
            elif at_ms == Place.BEGIN:
                found = self.consumer.beginning_offsets(places, timeout_ms=ASK_MS)
            else:
                found = self.consumer.end_offsets(places, timeout_ms=ASK_MS)
        return {place.partition: found[place] for place in places}

    def close(self) -> None:
        """Leave the group, if there is one, and disconnect; see ``Cluster.close``."""
        if self.consumer is not None:
            with suppress(errors.KafkaError):  # the session timeout then removes the member
                self.consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)


def _found(topic: dict[str, Any], configs: dict[str, Any], names: Sequence[str]) -> FoundTopic:
    partitions = topic["partitions"]
    return FoundTopic(
        partitions=len(partitions),
        replicas=min((len(each["replica_nodes"]) for each in partitions), default=0),
        settings={
            name: str(configs[name]["value"])
            for name in names
            if configs.get(name, {}).get("value") is not None
        },
        leaderless=sum(each["leader_id"] < 0 for each in partitions),
    )


def _consumer_options(model: KafkaSourceModel) -> dict[str, Any]:
    return {
        "auto_offset_reset": "none",  # our own policy handles missing offsets
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "isolation_level": "read_committed",
        "bootstrap_timeout_ms": model.connect_timeout_ms,
        "reconnect_backoff_max_ms": 2_000,
        "request_timeout_ms": 15_000,
        # limits the memory of a busy host
        "fetch_max_bytes": 8 * _MIB,
        "max_partition_fetch_bytes": _MIB,
        "metrics_enabled": False,
    }


def _member_options(model: KafkaSourceModel) -> dict[str, Any]:
    return {
        "group_id": model.group,
        "max_poll_interval_ms": model.poll_interval_ms,
        "session_timeout_ms": model.session_timeout_ms,
        "heartbeat_interval_ms": min(3_000, model.session_timeout_ms // 3),
        "partition_assignment_strategy": [CooperativeStickyAssignor],
    }
