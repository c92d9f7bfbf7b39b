"""A topic of raw events as a source: its identity, its opening, and membership of its group."""

import sys
from collections.abc import Mapping
from typing import override

from walle_connectors.kafka.cluster import TopicIdentity
from walle_connectors.kafka.drivers import open_fetcher, open_group
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.mapped import MappedDecoder
from walle_connectors.kafka.source.membership import GroupReader
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.reader import KafkaReader
from walle_connectors.kafka.source.records import RecordDecoder
from walle_stream.errors import SourceError
from walle_stream.ports import DeclaredIds, Placement
from walle_stream.reading import LaneSource, Opening


class KafkaSource(LaneSource):
    """Events from one topic, keyed by device; a ``ports.PlacingSource``.

    All members but ``is_placed`` ask the brokers and block. They raise ``SourceError`` if the topic
    is missing, and ``BrokerUnreachableError`` if no broker answers or TLS is refused.
    """

    reads_apart = True

    def __init__(self, model: KafkaSourceModel) -> None:
        """Store the definition without contacting a broker."""
        self._model = model
        self.name = f"topic {model.topic!r}"
        self._identity: TopicIdentity | None = None

    @property
    def is_placed(self) -> bool:
        """Whether a consumer group assigns partitions to hosts."""
        return self._model.group is not None

    @property
    def partition_count(self) -> int:
        """Number of partitions to read; records without keys raise ``SourceError``."""
        client = TopicClient(self._model)
        try:
            client.check_keys(self._decoder().named_device)
            self._identity = client.identity
        finally:
            client.close()
        return self._read_of(self._identity)

    @property
    def declared(self) -> DeclaredIds:
        """Ids and pages that are literals in the mapping."""
        mapping = self._model.mapping
        return DeclaredIds() if mapping is None else mapping.declared

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """Topic, cluster and mapping, without the addresses of brokers."""
        if self._identity is None:
            client = TopicClient(self._model)
            self._identity = client.identity
            client.close()
        mapping = self._model.mapping
        told = {"topic": self._model.topic, "cluster": self._identity.cluster}
        return told if mapping is None else told | {"mapping": mapping.digest}

    @override
    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Describe the difference from a stored fingerprint; empty if there is none."""
        found = self.fingerprint
        is_same_cluster = not (found["cluster"] and stored.get("cluster")) or (
            found["cluster"] == stored["cluster"]
        )
        if stored.get("topic") != found["topic"] or not is_same_cluster:
            return f"it is in cluster {found['cluster']!r}, but was {dict(stored)} before"
        is_same = found.get("mapping") == stored.get("mapping")
        return "" if is_same else "spec.source maps it to events in another way than before"

    @override
    def _reader(self, opening: Opening) -> KafkaReader:
        client = TopicClient(self._model)
        try:
            self._expect_count(client, len(opening.numbers))
            fetcher = open_fetcher(client, self._model, has_headers=self._model.trace)
            reader = KafkaReader(client, self._model, self._decoder(), opening, fetcher)
        except BaseException:
            client.close()
            raise
        return reader

    def join(
        self, placement: Placement, batch_events: int, limit: int | None = None
    ) -> GroupReader:
        """Become a member of the group; see ``ports.PlacingSource.join``."""
        client = TopicClient(self._model, is_member=True)
        try:
            opening = Opening({}, (), batch_events, limit)
            group = open_group(client, self._model, has_headers=self._model.trace)
            return GroupReader(client, group, self._model, self._decoder(), placement, opening)
        except BaseException:
            client.close()
            raise

    def _decoder(self) -> RecordDecoder:
        model = self._model
        if model.mapping is None:
            return RecordDecoder(model.max_record_bytes)
        return MappedDecoder(model.mapping, model.max_record_bytes)

    def _read_of(self, identity: TopicIdentity) -> int:
        return min(self._model.first_partitions or sys.maxsize, identity.partition_count)

    def _expect_count(self, client: TopicClient, count: int) -> None:
        found = self._read_of(client.identity)
        if found != count:
            raise SourceError(
                f"topic {self._model.topic!r} has {found} partitions, the data directory {count}: "
                f"give spec.runtime.partitions={found} and a new --data-dir"
            )
