"""Whether a group of workers can go on where it stood. Pure.

Faust goes on from the committed offsets whatever became of topics meanwhile: it leaves out
what is before them when the tables are gone, and drops a new topic's records up to them.
"""

import logging
from collections.abc import Mapping

from walle_stream.errors import CloudStalledError, TunnelError

_log = logging.getLogger(__name__)


def anew(group: str) -> str:
    """Say how tables are made anew from what their topic still has."""
    return (
        f"stop all workers, {_delete(group)} and their data directories: the table is made anew "
        "of what the topic still has"
    )


def check_tables(group: str, topic: str, missing: str, offsets: Mapping[int, int]) -> None:
    """Look whether tables may begin empty.

    Args:
        group: Who reads.
        topic: What it reads.
        missing: A changelog that is not there.
        offsets: What the group reads next, by partition.

    Raises:
        TunnelError: Records were read, and what they brought is nowhere any more.
    """
    read = sum(offsets.values())
    if read:
        raise TunnelError(
            f"topic {missing!r}, which carries the table, is not on the broker any more, but group "
            f"{group!r} has read {read} records of {topic!r} already: {anew(group)}"
        )


def check_offsets(
    group: str, topic: str, offsets: Mapping[int, int], ends: Mapping[int, tuple[int, int]]
) -> None:
    """Look whether the records that the group reads next are those that it has not read.

    Args:
        group: Who reads.
        topic: What it reads.
        offsets: What the group reads next, by partition.
        ends: First and end offset, by partition, from later.

    Raises:
        TunnelError: The topic is another one.
    """
    for partition, offset in sorted(offsets.items()):
        first, end = ends.get(partition, (0, 0))
        if offset > end:
            raise TunnelError(
                f"partition {partition} of topic {topic!r} ends at {end}, but group {group!r} has "
                f"read up to {offset}: the topic was made anew, or has lost records; stop all "
                f"workers and {_delete(group)}: what the topic has is read, and nothing counts "
                "twice"
            )
        if offset < first:
            _log.error(
                "records %d to %d of partition %d of topic %r were deleted before they were read: "
                "what they bring is missing in the table; raise retention.ms of the topic",
                offset,
                first - 1,
                partition,
                topic,
            )


def _delete(group: str) -> str:
    return f"delete the group {group!r} (kafka-consumer-groups --delete --group {group})"


class ReadOrder:
    """Looks whether every record of a topic is given to us: Faust drops some while partitions move.

    It would then commit what comes behind them. For topics that are written without transactions
    and are not compacted, as devices' features are: their offsets have no holes. Pure.
    """

    def __init__(self, topic: str) -> None:
        """Begin before any record."""
        self._topic = topic
        self._next: dict[int, int] = {}

    def takes(self, partition: int, offset: int, committed: int | None) -> bool:
        """Take a record, unless others may be missing before it.

        Args:
            partition: Of the topic.
            offset: The record's.
            committed: What the group reads next, as far as is known; None for nothing yet.
        """
        known = self._next.get(partition)
        if known is None and committed is None:
            return False
        if offset > max(known or 0, committed or 0):
            return False
        self._next[partition] = offset + 1
        return True

    def expect(self, partition: int, offset: int, first: int) -> None:
        """Take a record that ``takes`` did not, if nothing before it is left in the topic.

        Raises:
            CloudStalledError: Records were passed over; nothing behind them is committed.
        """
        if offset > max(first, self._next.get(partition, 0)):
            raise CloudStalledError(
                f"records before offset {offset} of partition {partition} of topic "
                f"{self._topic!r} were passed over while partitions moved: the process ends, start "
                "it again and it reads them"
            )
        self._next[partition] = offset + 1
