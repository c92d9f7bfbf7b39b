"""A topic of raw events as a source: its identity, and opening or joining it."""

from collections.abc import Mapping

from walle_connectors.kafka.source.client import TopicClient, TopicIdentity
from walle_connectors.kafka.source.confluent import ConfluentFetcher
from walle_connectors.kafka.source.membership import GroupReader
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.reader import KafkaReader
from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.ports import Placement


class KafkaSource:
    """Events from one topic, keyed by device; a ``ports.PlacingSource``.

    Everything but ``is_placed`` asks the brokers, and blocks.
    """

    def __init__(self, model: KafkaSourceModel) -> None:
        """Keep the definition; no broker is asked."""
        self._model = model
        self._identity: TopicIdentity | None = None

    @property
    def is_placed(self) -> bool:
        """Whether a consumer group says which host has which partition."""
        return self._model.group is not None

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has; checks that its records are keyed.

        Raises:
            SourceError: The topic is not there, or its records have no keys.
            BrokerUnreachableError: No broker answers, or TLS is refused.
        """
        client = TopicClient(self._model)
        try:
            client.check_keys()
            self._identity = client.identity
        finally:
            client.close()
        return self._identity.partition_count

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """Topic and cluster; not where the brokers are.

        Raises:
            SourceError: The topic is not there.
            BrokerUnreachableError: No broker answers, or TLS is refused.
        """
        if self._identity is None:
            client = TopicClient(self._model)
            self._identity = client.identity
            client.close()
        return {"topic": self._model.topic, "cluster": self._identity.cluster}

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse another topic, or one of another cluster.

        Raises:
            SourceChangedError: It differs.
            SourceError: The topic is not there.
            BrokerUnreachableError: No broker answers, or TLS is refused.
        """
        found = self.fingerprint
        is_same_cluster = not (found["cluster"] and stored.get("cluster")) or (
            found["cluster"] == stored["cluster"]
        )
        if stored.get("topic") != found["topic"] or not is_same_cluster:
            raise SourceChangedError(
                f"topic {found['topic']!r} in cluster {found['cluster']!r} is not the source that "
                f"the data directory was made from ({dict(stored)}): give the same, or a new "
                "--data-dir"
            )

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
    ) -> KafkaReader:
        """Open all partitions of the topic, without a group; see ``ports.Source.open``.

        Raises:
            SourceError: The topic cannot be opened, or an offset is not of it.
            BrokerUnreachableError: No broker answers, or TLS is refused.
        """
        client = TopicClient(self._model)
        try:
            self._expect_count(client, partition_count)
            fetcher = None
            if self._model.driver == "confluent":
                fetcher = ConfluentFetcher(self._model)
                client.watch()
            reader = KafkaReader(client, self._model, batch_events, limit, fetcher)
            reader.take_all(offsets)
        except BaseException:
            client.close()
            raise
        return reader

    def join(
        self, placement: Placement, batch_events: int, limit: int | None = None
    ) -> GroupReader:
        """Become a member of the group; see ``ports.PlacingSource.join``.

        Raises:
            SourceError: The topic is not there.
            BrokerUnreachableError: No broker answers, or TLS is refused.
        """
        client = TopicClient(self._model, is_member=True)
        try:
            return GroupReader(client, self._model, placement, batch_events, limit)
        except BaseException:
            client.close()
            raise

    def _expect_count(self, client: TopicClient, count: int) -> None:
        found = client.identity.partition_count
        if found != count:
            raise SourceError(
                f"topic {self._model.topic!r} has {found} partitions, the data directory {count}: "
                f"give spec.runtime.partitions={found} and a new --data-dir"
            )
