"""librdkafka's clients as a ``Cluster``.

A consumer does not report topic ids, so the admin client asks for the watched topic from time to
time, without waiting for the answer. A consumer asks for offsets: librdkafka 2.16 aborts the
process by an assertion if a broker dies while the admin client asks it for a group's offsets.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Final
from uuid import UUID

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
    Uuid,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    TopicDescription,
)

from walle_connectors.brokers import Connection
from walle_connectors.kafka.cluster import ASK_S, FoundTopic, TopicIdentity
from walle_connectors.kafka.librdkafka import is_waited_for, open_client
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.probe import probe_brokers
from walle_stream.clock import monotonic_ms
from walle_stream.errors import BrokerUnreachableError, SourceError, TopicError

_SEEN_S: Final = 10.0  # longest time until a cluster lists a topic that it has created
_AGAIN_S: Final = 0.05
# any other error of a request for offsets is treated as an unreachable broker
_NEVER: Final = {
    *("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"),
    *("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "_UNKNOWN_TOPIC"),
}
_MARGIN_S: Final = 1.0  # the library's own timeout comes first


class ConfluentCluster:
    """Implements ``Cluster``."""

    def __init__(self, connection: Connection) -> None:
        """Connect; blocks.

        Raises:
            BrokerUnreachableError: No broker answers, or every broker refuses the login.
        """
        self._connection = connection
        # last connection error of the client's threads, and whether the login caused it
        self._said, self._is_login = "", False
        self._due_ms = 0.0
        self._asking: Any = None  # a consumer, for offsets of the watched topic
        self._asked: Future[TopicDescription] | None = None
        probe_brokers(connection)
        self._client: Any = open_client(AdminClient, connection, {"error_cb": self._take_error})
        try:
            about = self._answer(self._client.describe_cluster(request_timeout=ASK_S))
        except BaseException:
            self.close()  # its callbacks must not outlive the interpreter
            raise
        self._brokers, self._cluster_id = len(about.nodes), about.cluster_id or ""

    def _take_error(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self._said, self._is_login = error.str(), error.name() == "_AUTHENTICATION"

    def _no_answer(self, reason: str) -> BrokerUnreachableError:
        return self._connection.no_answer(self._said or reason, is_login=self._is_login)

    def _answer(self, future: Future[Any], **instead: Any) -> Any:
        # ``instead`` maps names of errors to results
        try:
            return future.result(ASK_S + _MARGIN_S)
        except KafkaException as error:
            said: KafkaError = error.args[0]
            if said.name() in instead:
                return instead[said.name()]
            raise self._refused(said) from error
        except TimeoutError as error:
            raise self._no_answer("no answer in time") from error

    def _told(self, question: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        try:
            told = question()
        except KafkaException as error:
            raise self._refused(error.args[0], _NEVER) from error
        except UnicodeDecodeError as error:
            # the library reads past foreign metadata that lacks a NUL at its end
            raise self._connection.no_answer("undecodable metadata of offsets") from error
        for each in told:
            if each.error is not None:
                raise self._refused(each.error, _NEVER)
        return told

    def _refused(self, said: KafkaError, never: Collection[str] = ()) -> Exception:
        self._client.poll(0)
        if said.name() not in never if never else is_waited_for(said):
            return self._no_answer(f"{said.name()}: {said.str()}")
        return TopicError(
            f"the cluster refuses: {said.name()}: {said.str()}: see the access rights"
        )

    def brokers(self) -> int:
        """Return the number of brokers; see ``Cluster.brokers``."""
        return self._brokers

    def describe(
        self, names: Collection[str], settings: Sequence[str] = ()
    ) -> dict[str, FoundTopic]:
        """Return topics; see ``Cluster.describe``."""
        asked = self._client.describe_topics(TopicCollection(list(names)), request_timeout=ASK_S)
        found, hidden = {}, FoundTopic.hidden()
        for name in names:
            told = self._answer(
                asked[name], UNKNOWN_TOPIC_OR_PART=None, TOPIC_AUTHORIZATION_FAILED=hidden
            )
            if told is not None:
                found[name] = told if told is hidden else _found(told.partitions)
        there = [name for name, topic in found.items() if not topic.is_hidden]
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in there if settings]
        configs = self._client.describe_configs(resources) if resources else {}
        for resource, future in configs.items():
            values = {name: entry.value for name, entry in self._answer(future).items()}
            found[resource.name].settings.update(
                (name, values[name]) for name in settings if values.get(name) is not None
            )
        return found

    def create(
        self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]
    ) -> None:
        """Create a topic; see ``Cluster.create``."""
        topic = NewTopic(name, partitions, replicas, config=dict(settings))
        asked = self._client.create_topics([topic], request_timeout=ASK_S)
        self._answer(asked[name], TOPIC_ALREADY_EXISTS=None)
        deadline_ms = monotonic_ms() + _SEEN_S * 1000.0
        while name not in self.describe([name]) and monotonic_ms() < deadline_ms:
            time.sleep(_AGAIN_S)

    def grow(self, name: str, partitions: int, *, is_trial: bool) -> None:
        """Give a topic more partitions; see ``Cluster.grow``."""
        more = [NewPartitions(name, partitions)]
        asked = self._client.create_partitions(more, validate_only=is_trial, request_timeout=ASK_S)
        self._answer(asked[name])

    def delete(self, name: str) -> None:
        """Delete a topic; see ``Cluster.delete``."""
        self._answer(self._client.delete_topics([name], request_timeout=ASK_S)[name])

    def members(self, group: str) -> int:
        """Return the number of a group's members; see ``Cluster.members``."""
        asked = self._client.describe_consumer_groups([group], request_timeout=ASK_S)
        return len(self._answer(asked[group]).members)

    def committed(self, group: str, topic: str) -> dict[int, tuple[int, str]]:
        """Return a group's offsets; see ``Cluster.committed``."""
        found = self.describe([topic]).get(topic)
        places = [
            TopicPartition(topic, number) for number in range(found.partitions if found else 0)
        ]
        with closing(self._consumer(group)) as consumer:
            told = self._told(partial(consumer.committed, places, ASK_S)) if places else []
        return {
            each.partition: (each.offset, each.metadata or "") for each in told if each.offset >= 0
        }

    def _consumer(self, group: str) -> Any:
        # has no assignment and does not join the group
        return open_client(
            Consumer,
            self._connection,
            {
                "group.id": group,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "error_cb": self._take_error,
            },
        )

    # The watched topic

    def watch(
        self, model: KafkaSourceModel, metadata_ms: int, *, is_member: bool
    ) -> TopicIdentity | None:
        """Find a topic and keep watching it; see ``Cluster.watch``."""
        del is_member  # the member is another client
        self._model, self._metadata_ms = model, metadata_ms
        with self._of_topic():
            found = self.describe([model.topic]).get(model.topic)
            if found is None or found.is_hidden:
                return None
            self._known = self._identity(self._answer(self._ask()))
        return self._known

    @property
    def known(self) -> TopicIdentity:
        """The topic as last described; see ``Cluster.known``."""
        self._client.poll(0)  # serves the client's log lines and token refresh
        asked = self._asked
        if asked is not None and asked.done():
            self._asked = None
            if asked.exception() is None:
                self._known = self._identity(asked.result())
        elif asked is None and monotonic_ms() >= self._due_ms:
            self._asked = self._ask()
        return self._known

    def look_again(self) -> None:
        """Refresh the topic's description now; see ``Cluster.look_again``."""
        self._asked = self._ask()
        try:
            self._asked.result(ASK_S)
        except (KafkaException, TimeoutError):
            return

    def _ask(self) -> Future[TopicDescription]:
        self._due_ms = monotonic_ms() + self._metadata_ms
        topic = self._model.topic
        asked = self._client.describe_topics(TopicCollection([topic]), request_timeout=ASK_S)
        future: Future[TopicDescription] = asked[topic]
        return future

    def _identity(self, told: TopicDescription) -> TopicIdentity:
        return TopicIdentity(len(told.partitions), self._cluster_id, _text(told.topic_id))

    def offsets(self, numbers: Collection[int], at_ms: int) -> dict[int, int]:
        """Return offsets in partitions; see ``Cluster.offsets``.

        Raises:
            BrokerUnreachableError: No broker answers, or every broker refuses the login.
        """
        topic = self._model.topic
        if self._asking is None:
            self._asking = self._consumer(self._model.group or topic)
        # the library passes -1 and -2 on unchanged: Kafka's own codes for both ends
        places = [TopicPartition(topic, number, at_ms) for number in numbers]
        try:
            with self._of_topic():
                told = self._told(partial(self._asking.offsets_for_times, places, ASK_S))
        except BrokerUnreachableError:
            # nothing polls this consumer, so it misses a refused login; a new one reads the file
            self._asking.close()
            self._asking = None
            raise
        return {each.partition: max(each.offset, -1) for each in told}

    @contextmanager
    def _of_topic(self) -> Iterator[None]:
        topic = self._model.topic
        try:
            yield
        except BrokerUnreachableError:
            raise
        except TopicError as error:
            raise SourceError(f"reading of topic {topic!r} failed ({error})") from error

    def close(self) -> None:
        """Drop the clients, which then disconnect; see ``Cluster.close``."""
        if self._asking is not None:
            self._asking.close()
        self._client = self._asked = self._asking = None


def _found(partitions: Sequence[TopicPartitionInfo]) -> FoundTopic:
    return FoundTopic(
        partitions=len(partitions),
        replicas=min((len(each.replicas) for each in partitions), default=0),
        settings={},
        leaderless=sum(each.leader is None or each.leader.id < 0 for each in partitions),
    )


def _text(topic_id: Uuid) -> str:
    # kafka-python's notation, since stored offsets contain the id; old brokers send zeros
    mask = 2**64 - 1
    high, low = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    number = (high & mask) << 64 | low & mask
    return str(UUID(int=number)) if number else ""
