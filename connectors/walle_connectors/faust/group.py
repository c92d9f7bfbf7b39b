"""What the broker knows of the group of workers: how far it has read, and who has what."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    KafkaConnectionError,
    NotCoordinatorForGroupError,
)

_POLL_S: Final = 0.1
_MOVING: Final = {"PreparingRebalance", "CompletingRebalance"}


@asynccontextmanager
async def admin_client(options: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Open a client for what is no record."""
    admin = AIOKafkaAdminClient(**options)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def read_offsets(options: Mapping[str, Any], group: str, topic: str) -> dict[int, int]:
    """Return how far a group has read a topic; waits without an end for the group's coordinator.

    Returns:
        The next offset by partition; only those that were committed.

    Raises:
        KafkaError: It may not ask.
    """
    async with admin_client(options) as admin:
        while True:
            try:
                found = await admin.list_consumer_group_offsets(group)
            except (
                GroupCoordinatorNotAvailableError,
                GroupLoadInProgressError,
                KafkaConnectionError,
                NotCoordinatorForGroupError,
            ):
                # nobody leads groups while a broker starts, and before the first of a cluster
                await asyncio.sleep(_POLL_S)
                continue
            return {
                tp.partition: at.offset
                for tp, at in found.items()
                if tp.topic == topic and at.offset >= 0
            }


async def held_partitions(options: Mapping[str, Any], group: str, topic: str) -> set[int] | None:
    """Return which partitions of a topic the members of a group have.

    Returns:
        Numbers; None while partitions are being moved.

    Raises:
        KafkaError: It may not ask, or nobody answers.
    """
    async with admin_client(options) as admin:
        [answer] = await admin.describe_consumer_groups([group])
    [(_, _, state, _, _, members, *_)] = answer.groups
    if state in _MOVING:
        return None
    return {
        tp.partition
        for *_, assignment in members
        for tp in ConsumerProtocolMemberAssignment.decode(assignment).partitions()
        if tp.topic == topic
    }
