"""``walle topics grow``: more partitions for a pipeline's topics, with its state.

A grown topic places a device's next records in another partition. So no process may write or read
meanwhile, and all records must have been read. Then each device's rows move to its new partition,
at the hosts and in the tables of ``walle cloud``. The topics grow last, the source's topic after
all others. Until then the new databases are not in use, and the same command can start again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from walle_connectors.kafka import CONNECTOR
from walle_connectors.kafka.cluster import FoundTopic, NeededTopic, answered
from walle_connectors.kafka.drivers import open_cluster
from walle_connectors.kafka.pipeline import KafkaPart, kafka_parts
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.source.offsets import Bounds, TopicPosition, decode_positions
from walle_connectors.kafka.topics import find_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.cloud.partition_table import place_of
from walle_stream.cloud.place import own_data_dir
from walle_stream.cloud.splitting import split_table
from walle_stream.errors import SpecFileError, TopicError
from walle_stream.reading.offsets import encode_position
from walle_stream.spec.loader import LoadedPipeline
from walle_stream.store.growing import GrowingDatabases, GrowingFolder, growing_snapshots
from walle_stream.store.objects import open_objects
from walle_stream.store.snapshots import SnapshotPoint

if TYPE_CHECKING:
    from walle_connectors.brokers import Connection

PARTITIONS_MAX: Final = 10_000


class HostState(Protocol):
    """State of the hosts; see ``walle_stream.app.growing``."""

    @property
    def offsets(self) -> Mapping[int, bytes]:
        """Offsets of the source, by partition."""

    @property
    def down_positions(self) -> Mapping[int, int]:
        """Positions in the downlink, by partition."""

    def split(
        self, targets: Mapping[int, range], home: Callable[[str], int], begin: bytes
    ) -> Iterator[int]:
        """Make the new databases and yield each partition when it is done."""

    @property
    def databases(self) -> GrowingDatabases:
        """The databases, old and new."""


type OpenState = Callable[
    [LoadedPipeline[Any], Path | None, int], AbstractContextManager[HostState | None]
]


class Growth:
    """Growth of one pipeline's topics. For one thread; blocks.

    A pipeline that is not ready raises ``TopicError`` or ``StoreError`` and stays unchanged.
    """

    def __init__(self, loaded: LoadedPipeline[Any], after: int) -> None:
        """Check the definition.

        Raises:
            SpecFileError: The source is no topic, or ``after`` is no multiple of the pipeline's
                number of partitions.
        """
        source, before = loaded.source, loaded.pipeline.spec.runtime.partitions
        if not isinstance(source, KafkaSourceModel):
            raise SpecFileError(
                f"{loaded.file}: spec.source is not a topic: give a pipeline whose source is a "
                "topic"
            )
        if after % before or not before < after <= PARTITIONS_MAX:
            raise SpecFileError(
                f"{loaded.file}: {after} partitions: expected a multiple of the {before} of "
                f"spec.runtime.partitions, at most {PARTITIONS_MAX:,}; then each partition is "
                "split among new ones"
            )
        self._loaded, self._source = loaded, source
        self._before, self._after = before, after
        tunnel = loaded.tunnel
        self._tunnel = tunnel if isinstance(tunnel, KafkaTunnelModel) else None
        # only these topics must have as many partitions as the pipeline
        wanted = [
            part for part in kafka_parts(loaded) if part.place in {"spec.source", "spec.tunnel"}
        ]
        self._parts: list[KafkaPart] = wanted
        self._home = lambda device_id: CONNECTOR.device_partition(device_id, after)
        self._targets = {n: range(n, after, before) for n in range(before)}

    def run(
        self,
        open_state: OpenState,
        data_dir: Path | None,
        cloud: Path | None,
        snapshots: str | None,
        tell: Callable[[str], None],
    ) -> None:
        """Grow the topics; ``tell`` gets a line for each finished step.

        ``data_dir`` is the hosts' data directory, or None for the default. ``cloud`` is the data
        directory of the only worker of ``walle cloud``; ``snapshots`` is the URL that several
        workers share.

        Raises:
            TopicError: The pipeline is not ready, or records arrived meanwhile.
        """
        self._expect_nobody()
        with ExitStack() as stack:
            client = stack.enter_context(closing(TopicClient(self._source)))
            state = stack.enter_context(open_state(self._loaded, data_dir, self._after))
            if self._is_grown() and (state is None or state.databases.is_published):
                tell("the topics have grown already")
                return
            ends = client.bounds(range(self._before))
            grown: list[GrowingDatabases] = []
            if state is not None:
                self._expect_read(ends, state, client.identity.cluster)
                begin = _begin(client)
                for number in state.split(self._targets, self._home, begin):
                    tell(f"partition {number}: its devices are split")
                grown.append(state.databases)
            if self._tunnel is not None:
                grown += self._split_tables(stack, self._tunnel, cloud, snapshots, tell)
            self._grow_topics(lambda _: None, is_trial=True)
            for each in reversed(grown):
                each.publish()
            self._grow_topics(tell)
            for each in grown:
                each.forget()
            came = [
                number
                for number, each in client.bounds(range(self._before)).items()
                if each.end > ends[number].end
            ]
        if came:
            raise TopicError(
                f"records came into partitions {came} of {self._source.topic!r} meanwhile: devices "
                "that have moved begin there without state. Stop all producers while topics grow. "
                "All other steps are done",
                self._source.topic,
            )

    # Preconditions

    def _expect_nobody(self) -> None:
        name = self._loaded.pipeline.metadata.name
        groups: list[tuple[Connection, str]] = []
        if self._source.group:
            groups.append((self._source, self._source.group))
        if self._tunnel is not None:
            groups.append((self._tunnel, f"walle-cloud-{name}"))
        for connection, group in groups:
            with closing(open_cluster(connection)) as cluster:
                members = answered(partial(cluster.members, group))
            if members:
                raise TopicError(f"group {group!r} has {members} members: stop them all first")

    def _expect_read(self, ends: Mapping[int, Bounds], state: HostState, cluster: str) -> None:
        topic = self._source.topic
        stored = decode_positions(state.offsets, topic, cluster)
        for number, each in ends.items():
            at = stored[number].next if number in stored else each.begin
            self._expect(
                number, topic, each.end - at, "let walle run read them, and end it by SIGTERM"
            )
        if self._tunnel is not None and self._tunnel.down_topic:
            topic, advice = (
                self._tunnel.down_topic,
                "let walle run take them, and end it by SIGTERM",
            )
            with closing(self._client(self._tunnel, topic)) as down:
                for number, each in down.bounds(range(self._before)).items():
                    at = max(state.down_positions.get(number, 0), each.begin)
                    self._expect(number, topic, each.end - at, advice)

    def _expect(self, number: int, topic: str, unread: int, advice: str) -> None:
        if unread > 0:
            raise TopicError(
                f"{topic}[{number}] has {unread} unread records: stop the producers, {advice}",
                topic,
            )

    # Steps

    def _split_tables(
        self,
        stack: ExitStack,
        tunnel: KafkaTunnelModel,
        cloud: Path | None,
        snapshots: str | None,
        tell: Callable[[str], None],
    ) -> list[GrowingDatabases]:
        client = stack.enter_context(closing(self._client(tunnel, tunnel.topic)))
        bounds = client.bounds(range(self._before))
        name, counts = self._loaded.pipeline.metadata.name, (self._before, self._after)
        tables: GrowingDatabases
        if snapshots is not None:
            growing = growing_snapshots(open_objects(snapshots), name, counts, _point)
            tables = stack.enter_context(growing)
        elif cloud is not None:
            tables = GrowingFolder(stack.enter_context(own_data_dir(cloud)), *counts)
        elif any(each.end > 0 for each in bounds.values()) and self._has_cloud(tunnel):
            raise TopicError(
                f"topic {tunnel.topic!r} was read by walle cloud, whose tables must grow, too: "
                "give --snapshots, or --cloud-data-dir of its only worker",
                tunnel.topic,
            )
        else:
            return []
        begin = _begin(client)
        for number, each in bounds.items():
            path = tables.old(number)
            at = place_of(path).next if path is not None else each.begin
            advice = "let walle cloud merge them, and end by SIGTERM"
            self._expect(number, tunnel.topic, each.end - at, advice)
            if path is not None:
                new = {target: tables.new(target) for target in self._targets[number]}
                split_table(path, new, self._home, begin)
                tell(f"partition {number}: its table is split")
        return [tables]

    def _has_cloud(self, tunnel: KafkaTunnelModel) -> bool:
        group = f"walle-cloud-{self._loaded.pipeline.metadata.name}"
        with closing(open_cluster(tunnel)) as cluster:
            return bool(answered(lambda: cluster.committed(group, tunnel.topic)))

    def _is_grown(self) -> bool:
        return all(
            topic is not None and topic.partitions == self._after
            for part in self._parts
            for topic in find_topics(part.connection, part.topics).values()
        )

    def _grow_topics(self, tell: Callable[[str], None], *, is_trial: bool = False) -> None:
        # a trial makes the cluster refuse before any change takes effect
        for part in reversed(self._parts):
            found = find_topics(part.connection, part.topics)
            for each in part.topics:
                self._grow_topic(part, each, found[each.name], is_trial=is_trial)
                tell(f"topic {each.name!r} ({each.key}): {self._after} partitions")

    def _grow_topic(
        self, part: KafkaPart, needed: NeededTopic, found: FoundTopic | None, *, is_trial: bool
    ) -> None:
        count = 0 if found is None else found.partitions
        if count == self._after:
            return
        with closing(open_cluster(part.connection)) as cluster:
            try:
                cluster.grow(needed.name, self._after, is_trial=is_trial)
            except TopicError as error:
                raise TopicError(
                    f"topic {needed.name!r} ({needed.key}) has {count} partitions and cannot get "
                    f"more: {error}",
                    needed.name,
                ) from error

    def _client(self, tunnel: KafkaTunnelModel, topic: str) -> TopicClient:
        return TopicClient(KafkaSourceModel.of(tunnel, topic), named_by="spec.tunnel")


def _begin(client: TopicClient) -> bytes:
    # an unread partition starts at its first record, whatever `startAt` says
    identity = client.identity
    position = TopicPosition(
        next=0, topic=client.topic, topic_id=identity.topic_id, cluster=identity.cluster
    )
    return encode_position(position)


def _point(path: Path) -> tuple[SnapshotPoint, str]:
    return SnapshotPoint(1, place_of(path).progress), ""
