"""Looks at the broker before an app starts, so that what is wrong is one line.

Faust waits for a broker without an end, passes over topics that are not there until the
next rebalance, and fails when a changelog topic that it just made is not yet known
everywhere: so they are made here, and waited for.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from walle_connectors.faust.settings import KafkaPart, tls_context
from walle_connectors.probe import probe_brokers
from walle_stream.errors import BrokerUnreachableError, TopicError

_PATIENCE_S: Final = 20.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class TopicShape:
    """What a topic is like on the broker."""

    partitions: int
    replicas: int
    is_leaderless: bool = False
    """Whether nobody leads one of the partitions at the moment."""


async def look_at_topic(part: KafkaPart, changelogs: Sequence[str] = ()) -> TopicShape:
    """Connect and look at a topic; make the changelog topics that go with it.

    Args:
        part: Broker and topic.
        changelogs: Names of compacted topics of as many partitions, made if they are missing.

    Raises:
        BrokerUnreachableError: None of the brokers answers, or TLS is refused.
        TopicError: The topic is not there, or a changelog has another number of partitions.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            consumer = await connect(part)
            try:
                return await _look(part, consumer, changelogs)
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
    consumer = AIOKafkaConsumer(**_addressed(part), **options)
    try:
        await consumer.start()
    except (KafkaError, OSError) as error:
        await consumer.stop()
        raise BrokerUnreachableError(_unreachable(part, str(error))) from error
    return consumer


async def _look(part: KafkaPart, consumer: Any, changelogs: Sequence[str]) -> TopicShape:
    found = await _shapes(consumer)
    while part.topic in found and found[part.topic].is_leaderless:
        # a broker that is only starting knows the topic before it leads it
        await asyncio.sleep(_POLL_S)
        found = await _shapes(consumer)
    shape = found.get(part.topic)
    if shape is None:
        raise TopicError(
            f"topic {part.topic!r} is not on {', '.join(part.brokers)}, or may not be seen: create "
            "it with walle topics FILE --create, or allow DESCRIBE",
            part.topic,
        )
    missing = [name for name in changelogs if name not in found]
    if missing:
        await _make(part, missing, shape)
    while any(name not in found or found[name].is_leaderless for name in changelogs):
        await asyncio.sleep(_POLL_S)
        found = await _shapes(consumer)
    for name in changelogs:
        if found[name].partitions != shape.partitions:
            raise TopicError(
                f"topic {name!r} has {found[name].partitions} partitions and {part.topic!r} "
                f"{shape.partitions}: delete the former together with the data directory (the "
                "table is made anew), or give the pipeline another name",
                name,
            )
    return shape


async def _shapes(consumer: Any) -> dict[str, TopicShape]:
    found = await consumer._client.fetch_all_metadata()  # noqa: SLF001 - there is no public way
    shapes = {}
    for name in found.topics(exclude_internal_topics=False):
        partitions = [
            found._partitions[name][number]  # noqa: SLF001 - same
            for number in found.partitions_for_topic(name) or ()
        ]
        if partitions:
            is_leaderless = any(each.leader < 0 for each in partitions)
            shapes[name] = TopicShape(len(partitions), len(partitions[0].replicas), is_leaderless)
    return shapes


async def _make(part: KafkaPart, names: Sequence[str], shape: TopicShape) -> None:
    admin = AIOKafkaAdminClient(**_addressed(part))
    await admin.start()
    try:
        answer = await admin.create_topics(
            [
                NewTopic(
                    name,
                    shape.partitions,
                    shape.replicas,
                    topic_configs={"cleanup.policy": "compact"},
                )
                for name in names
            ]
        )
    except TopicAlreadyExistsError:
        return  # another worker was quicker
    finally:
        await admin.close()
    for name, code, *_ in answer.topic_errors:
        if code not in {0, TopicAlreadyExistsError.errno}:
            raise TopicError(
                f"topic {name!r} cannot be made ({for_code(code).__name__}): allow it to "
                f"{part.client_id!r}, or make it with {shape.partitions} partitions and "
                "cleanup.policy=compact",
                name,
            )


def _addressed(part: KafkaPart) -> dict[str, Any]:
    context = tls_context(part)
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
