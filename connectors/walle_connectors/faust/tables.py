"""Tables of bytes whose changelogs lose nothing to workers that were cut off.

A worker that was cut off (a paused machine, a network split) still sends rows that it had in
hand, behind those of its successor. Rows only grow: of two of a key the newer says all that
the older does, whoever wrote it. So everybody who sees an older row behind a newer writes the
newer once more: compaction keeps the last of each key. Its successor sees that at the next row
that he writes, since offsets between his own are somebody else's; everybody else as he recovers.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final

import faust
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from walle_connectors.faust.preflight import TopicShape, addressed
from walle_connectors.faust.settings import KafkaPart

_log = logging.getLogger(__name__)

_POLL_MS: Final = 200

# Faust's own are for one database: 2 GiB of cache and 64 MiB of writes, per partition
_ROCKS: Final = {
    "driver": "rocksdict",
    "block_cache_size": 16 * 2**20,
    "write_buffer_size": 8 * 2**20,
    "max_open_files": 256,
}

type IsOlder = Callable[[bytes, bytes], bool]
"""Of two values of a key."""


class TrackedTable(faust.Table):  # type: ignore[misc]
    """A table that knows which of its changelog records are on the way to the broker.

    Faust commits a source offset as soon as its record was acknowledged, although the
    changelog record may still wait in the producer's buffer, whose flush gives up after
    a tenth of a second; killed in between, the row would be on this disk only.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Begin with none; as Faust's."""
        super().__init__(*arguments, **options)
        self.unsent: list[asyncio.Future[Any]] = []
        self.is_older: IsOlder | None = None
        """Says of two values of a key whether the first is the older one."""
        self.part: KafkaPart | None = None
        """Where the changelog is; read where somebody else wrote into it."""
        self._hidden: dict[int, set[bytes]] = defaultdict(set)  # keys, by partition
        self._last: dict[Any, int] = {}  # own records of changelog partitions

    def apply_changelog_batch(self, batch: Iterable[Any]) -> None:
        """Recover rows; never puts an older one over a newer.

        A worker that was cut off may write what it had after its successor wrote more,
        and a kill leaves rows on the disk that the changelog does not have yet.
        """
        events = list(batch)
        if self.is_older is not None:
            known: dict[tuple[int, bytes], bytes | None] = {}
            for event in events:
                message = event.message
                place = (message.partition, message.key)
                if place not in known:
                    known[place] = self._row(message.partition, message.key)
                row = known[place]
                if row is not None and message.value and self.is_older(message.value, row):
                    message.value = row
                    self._hidden[message.partition].add(message.key)
                else:
                    self._hidden[message.partition].discard(message.key)
                known[place] = message.value
        super().apply_changelog_batch(events)

    def send_changelog(self, *arguments: Any, **options: Any) -> Any:
        """Send, and remember.

        Returns:
            The future of the broker's acknowledgement.
        """
        sent = super().send_changelog(*arguments, **options)
        self.unsent.append(sent)
        return sent

    async def on_recovery_completed(self, active_tps: Any, standby_tps: Any) -> None:
        """Write again what an older row hides; run by Faust before streams go on."""
        await super().on_recovery_completed(active_tps, standby_tps)
        for place in active_tps:
            self._show(place.partition, self._hidden.pop(place.partition, ()))

    def _on_changelog_sent(self, fut: Any) -> None:
        # the offset from which recovery reads. Faust takes that of any record it sent: a worker
        # that was cut off, and sends what it still had in hand, would pass over its successor's
        sent = fut.result()
        place, offset = sent.topic_partition, sent.offset
        known = self.data.persisted_offset(place)
        before = -1 if known is None else known
        if offset == before + 1:
            self.data.set_persisted_offset(place, offset)
        first = max(before, self._last.get(place, -1)) + 1
        self._last[place] = max(offset, first - 1)
        if first < offset and self.part is not None and self.is_older is not None:
            between = read_changelog(self.part, place, first, offset)
            self.app.add_future(self._look_between(place, between, self.is_older))

    async def _look_between(
        self, place: Any, between: AsyncIterator[tuple[bytes, bytes | None]], is_older: IsOlder
    ) -> None:
        hidden = set()
        try:
            async for key, value in between:
                row = self._row(place.partition, key)
                if row is not None and value and is_older(value, row):
                    hidden.add(key)
        except (KafkaError, OSError) as error:
            # whoever recovers next sees it, too
            _log.warning("what others wrote into %s cannot be read: %s", place, error)
        if hidden:
            text = "another worker wrote %d older rows into %s: they are written again"
            _log.warning(text, len(hidden), place)
        self._show(place.partition, hidden)

    def _show(self, partition: int, keys: Iterable[bytes]) -> None:
        for key in keys:
            self.send_changelog(partition, key, self._row(partition, key))

    def _row(self, partition: int, key: bytes) -> bytes | None:
        found: bytes | None = self.data._db_for_partition(partition).get(key)  # noqa: SLF001 - there is no event to read by
        return found


async def read_changelog(
    part: KafkaPart, place: Any, first: int, end: int
) -> AsyncIterator[tuple[bytes, bytes | None]]:
    """Read a piece of a partition; what was compacted away is left out.

    Args:
        part: Broker.
        place: Topic and partition.
        first: Offset of the first record.
        end: Offset behind the last.

    Yields:
        Key and value.

    Raises:
        KafkaError: It cannot be read.
    """
    consumer = AIOKafkaConsumer(**addressed(part), enable_auto_commit=False)
    try:
        await consumer.start()
        own = TopicPartition(place.topic, place.partition)
        consumer.assign([own])
        consumer.seek(own, first)
        while await consumer.position(own) < end:
            for records in (await consumer.getmany(own, timeout_ms=_POLL_MS)).values():
                for record in records:
                    if record.offset < end:
                        yield record.key, record.value
    finally:
        await consumer.stop()


def ack_when_sent(app: Any, event: Any, *sent: "asyncio.Future[Any]") -> None:
    """Acknowledge a record of a stream once the broker has what it caused.

    For a stream with ``noack``. Where one may wait much longer than those behind it, give what
    ``acks.AckOrder`` made of the event.

    Args:
        app: Of ``make_app``.
        event: Faust's.
        *sent: Futures of what it caused; those of the app's tables are added.
    """
    waiting = list(sent)
    for table in app.tables.values():
        waiting += table.unsent
        table.unsent.clear()
    if not waiting:
        event.ack()
        return

    def on_sent(done: "asyncio.Future[Any]") -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            event.ack()
        else:
            app.add_future(app.crash(error))

    asyncio.gather(*waiting).add_done_callback(on_sent)


def make_table(
    app: Any,
    name: str,
    shape: TopicShape,
    is_older: IsOlder | None = None,
    part: KafkaPart | None = None,
) -> Any:
    """Make a table of bytes in the app's data directory, RocksDB through rocksdict.

    Args:
        app: Of ``make_app``.
        name: Of the table.
        shape: Of the topic that it goes with, partition by partition.
        is_older: Says of two values of a key whether the first is the older one, so that
            recovery never goes back; None takes the changelog's order.
        part: Where the changelog is, to look at what others write into it; with ``is_older``.
    """
    table = app.Table(
        name,
        key_type=bytes,
        value_type=bytes,
        partitions=shape.partitions,
        options=dict(_ROCKS),
    )
    table.is_older = is_older
    table.part = part
    return table
