"""Looks at the broker before an app starts, so that what is wrong is one line.

Faust waits for a broker without an end, passes over topics that are not there until the
next rebalance, and fails when a changelog topic that it just made is not yet known
everywhere: so they are made here, and waited for.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from walle_connectors.faust.continuity import anew, check_offsets, check_tables
from walle_connectors.faust.group import admin_client, read_offsets
from walle_connectors.faust.settings import KafkaPart
from walle_connectors.probe import probe_brokers
from walle_stream.errors import BrokerUnreachableError, TopicError

_PATIENCE_S: Final = 20.0
_POLL_S: Final = 0.1

_SIZE: Final = "max.message.bytes"
_CHANGELOG: Final = {
    "cleanup.policy": "compact",
    # Kafka's default: a cluster's own may be below what a row takes (device_row.ROW_MAX_BYTES)
    _SIZE: "1048588",
}


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What a topic is like on the broker."""

    partitions: int
    replicas: int
    is_leaderless: bool = False
    """Whether nobody leads one of the partitions at the moment."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What an app keeps of a topic that it reads."""

    group: str
    """Who reads the topic: its name begins the names of the changelogs."""
    names: Sequence[str]

    @property
    def changelogs(self) -> list[str]:
        """The topics that carry the tables."""
        return [f"{self.group}-{name}-changelog" for name in self.names]


async def look_at_topic(part: KafkaPart, tables: Tables | None = None) -> TopicShape:
    """Connect and look at a topic; make the changelog topics that go with it.

    Args:
        part: Broker and topic.
        tables: What is made of it: changelogs that are missing are made, compacted and of as
            many partitions.

    Raises:
        BrokerUnreachableError: None of the brokers answers, or TLS is refused.
        TopicError: The topic is not there, or a changelog has another number of partitions, or
            settings that lose rows.
        TunnelError: A changelog is missing although the group has read the topic, or the topic
            was made anew.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            consumer = await connect(part)
            try:
                return await _look(part, consumer, tables or Tables("", ()))
            finally:
                await consumer.stop()
    except TimeoutError as error:
        raise BrokerUnreachableError(
            _unreachable(part, f"not within {_PATIENCE_S:.0f} s")
        ) from error
    except BrokerUnreachableError:
        raise  # an OSError as well, and said already
    except (KafkaError, OSError) as error:
        raise BrokerUnreachableError(_unreachable(part, str(error))) from error


async def connect(part: KafkaPart, **options: Any) -> AIOKafkaConsumer:
    """Return a started consumer without topics or group.

    Args:
        part: Broker and TLS.
        **options: Further ones of ``AIOKafkaConsumer``.

    Raises:
        BrokerUnreachableError: None of the brokers answers, or TLS is refused.
    """
    # aiokafka says only that it could not
    await asyncio.to_thread(probe_brokers, part)
    consumer = AIOKafkaConsumer(**addressed(part), **options)
    try:
        await consumer.start()
    except (KafkaError, OSError) as error:
        await consumer.stop()
        raise BrokerUnreachableError(_unreachable(part, str(error))) from error
    return consumer


async def _look(part: KafkaPart, consumer: Any, tables: Tables) -> TopicShape:
    changelogs = tables.changelogs
    found = await shapes(consumer)
    while part.topic in found and found[part.topic].is_leaderless:
        # a broker that is only starting knows the topic before it leads it
        await asyncio.sleep(_POLL_S)
        found = await shapes(consumer)
    shape = found.get(part.topic)
    if shape is None:
        raise TopicError(
            f"topic {part.topic!r} is not on {', '.join(part.brokers)}, or may not be seen: create "
            "it with walle topics FILE --create, or allow DESCRIBE",
            part.topic,
        )
    if changelogs:
        offsets = await read_offsets(addressed(part), tables.group, part.topic)
        check_offsets(tables.group, part.topic, offsets, await _ends(consumer, part.topic, shape))
        found = await shapes(consumer)
        missing = [name for name in changelogs if name not in found]
        if missing:
            check_tables(tables.group, part.topic, missing[0], offsets)
            await _make(part, missing, shape)
    while any(name not in found or found[name].is_leaderless for name in changelogs):
        await asyncio.sleep(_POLL_S)
        found = await shapes(consumer)
    for name in changelogs:
        if found[name].partitions != shape.partitions:
            raise TopicError(
                f"topic {name!r} has {found[name].partitions} partitions and {part.topic!r} "
                f"{shape.partitions}: {anew(tables.group)}, after deleting the former; or give the "
                "pipeline another name",
                name,
            )
    if changelogs:
        await _check_kept(part, changelogs)
    return shape


async def _check_kept(part: KafkaPart, names: Sequence[str]) -> None:
    """Check that changelogs which somebody else made keep the last row of each device.

    Raises:
        TopicError: One does not.
    """
    async with admin_client(addressed(part)) as admin:
        answers = await admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
        )
    for code, _message, _kind, name, entries in (each for a in answers for each in a.resources):
        if code:
            continue  # we may not see it, and need not
        settings = {entry[0]: entry[1] for entry in entries}
        for key, wanted in _CHANGELOG.items():
            found = settings.get(key, wanted)
            if found != wanted and not (key == _SIZE and int(found) > int(wanted)):
                raise TopicError(
                    f"topic {name!r} has {key}={found}, so it would lose rows of the table that it "
                    f"carries: set {key}={wanted}",
                    name,
                )


async def shapes(consumer: Any) -> dict[str, TopicShape]:
    """Return what topics there are.

    Args:
        consumer: Of ``connect``.
    """
    found = await consumer._client.fetch_all_metadata()  # noqa: SLF001 - there is no public way
    made = {}
    for name in found.topics(exclude_internal_topics=False):
        partitions = [
            found._partitions[name][number]  # noqa: SLF001 - same
            for number in found.partitions_for_topic(name) or ()
        ]
        if partitions:
            is_leaderless = any(each.leader < 0 for each in partitions)
            made[name] = TopicShape(len(partitions), len(partitions[0].replicas), is_leaderless)
    return made


async def _ends(consumer: Any, topic: str, shape: TopicShape) -> dict[int, tuple[int, int]]:
    places = [TopicPartition(topic, number) for number in range(shape.partitions)]
    first = await consumer.beginning_offsets(places)
    ends = await consumer.end_offsets(places)
    return {tp.partition: (first[tp], end) for tp, end in ends.items()}


async def _make(part: KafkaPart, names: Sequence[str], shape: TopicShape) -> None:
    try:
        async with admin_client(addressed(part)) as admin:
            answer = await admin.create_topics(
                [
                    NewTopic(name, shape.partitions, shape.replicas, topic_configs=_CHANGELOG)
                    for name in names
                ]
            )
    except TopicAlreadyExistsError:
        return  # another worker was quicker
    for name, code, *_ in answer.topic_errors:
        if code not in {0, TopicAlreadyExistsError.errno}:
            raise TopicError(
                f"topic {name!r} cannot be made ({for_code(code).__name__}): allow it to "
                f"{part.client_id!r}, or make it with {shape.partitions} partitions and "
                "cleanup.policy=compact",
                name,
            )


def addressed(part: KafkaPart) -> dict[str, Any]:
    """Return what any client of aiokafka takes.

    Raises:
        BrokerUnreachableError: TLS files are wrong.
    """
    context = part.tls_context()
    return {
        "bootstrap_servers": list(part.brokers),
        "client_id": part.client_id,
        "security_protocol": "SSL" if context else "PLAINTEXT",
        "ssl_context": context,
    }


def _unreachable(part: KafkaPart, reason: str) -> str:
    return (
        f"no broker answers at {', '.join(part.brokers)} ({reason}): check that it runs, the "
        "address under brokers, and tls"
    )
