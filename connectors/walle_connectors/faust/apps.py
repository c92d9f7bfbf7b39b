"""Makes Faust apps with our settings: topics and tables of bytes, records acknowledged late.

An app binds the event loop in which it is made; see ``worker``.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import faust
from yarl import URL

from walle_connectors.faust.preflight import TopicShape
from walle_connectors.faust.settings import KafkaPart
from walle_connectors.faust.watchdog import PATIENCE_MS_DEFAULT

WEB_PORT_DEFAULT: Final = 6066
"""Faust's own."""

_SESSION_S: Final = 10.0
_COMMIT_S: Final = 1.0
_BUFFER_MESSAGES: Final = 2_000
_LINGER_S: Final = 0.003

# Faust's own are for one database: 2 GiB of cache and 64 MiB of writes, per partition
_ROCKS: Final = {
    "driver": "rocksdict",
    "block_cache_size": 16 * 2**20,
    "write_buffer_size": 8 * 2**20,
    "max_open_files": 256,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker runs."""

    data_dir: Path
    """Of this worker alone."""
    web_host: str = "127.0.0.1"
    web_port: int = WEB_PORT_DEFAULT
    patience_ms: int = PATIENCE_MS_DEFAULT


def make_app(name: str, part: KafkaPart, shape: TopicShape, options: WorkerOptions) -> Any:
    """Make a Faust app without agents; nothing is opened or connected yet.

    Args:
        name: Of the app: consumer group, and prefix of its changelog topics.
        part: Broker.
        shape: Of the topic that is consumed: the app's own are like it.
        options: Of the worker.

    Raises:
        BrokerUnreachableError: TLS files are wrong.
    """
    context = part.tls_context()
    address = URL.build(scheme="http", host=options.web_host, port=options.web_port)
    app = faust.App(
        name,
        Table=TrackedTable,
        broker=[URL(f"kafka://{broker}") for broker in part.brokers],
        broker_credentials=faust.SSLCredentials(context=context) if context else None,
        broker_client_id=part.client_id,
        # after a kill the group waits so long for the dead worker
        broker_session_timeout=_SESSION_S,
        broker_heartbeat_interval=_SESSION_S / 4,
        broker_commit_interval=_COMMIT_S,
        consumer_auto_offset_reset="earliest",
        # not its exactly_once: there, recovery after a rebalance believes a remembered end of the
        # changelog and leaves rows out (seen with 0.15.3); merging is idempotent instead
        processing_guarantee="at_least_once",
        # every row is a record: one request each would cost more than the work
        producer_linger=_LINGER_S,
        # what an agent failed at is not done
        stream_ack_exceptions=False,
        store="rocksdb://",
        # look-ups must not answer from another worker's copy, which lags
        table_standby_replicas=0,
        datadir=options.data_dir,
        topic_partitions=shape.partitions,
        topic_replication_factor=shape.replicas,
        topic_disable_leader=True,
        web_host=options.web_host,
        web_bind=options.web_host,
        web_port=options.web_port,
        canonical_url=address,
        # its pages show and reveal more than ours
        web_stats_enabled=False,
        web_graph_enabled=False,
        web_router_enabled=False,
        web_tables_enabled=False,
        web_metrics_enabled=False,
        worker_redirect_stdouts=False,
        autodiscover=False,
    )

    @app.on_partitions_assigned.connect  # type: ignore[untyped-decorator]
    async def on_assigned(app: Any, *_: Any, **__: Any) -> None:
        # what is in it waits for the broker; Faust's 100 stop the stream all the time
        app.producer.buffer.max_messages = _BUFFER_MESSAGES

    return app


def make_topic(app: Any, name: str, shape: TopicShape) -> Any:
    """Make a topic of bytes, which nobody decodes but us: Faust would end the agent.

    Args:
        app: Of ``make_app``.
        name: Of the topic.
        shape: As the broker has it.
    """
    return app.topic(
        name,
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
        allow_empty=True,
        partitions=shape.partitions,
    )


type IsOlder = Callable[[bytes, bytes], bool]
"""Of two values of a key."""


class TrackedTable(faust.Table):  # type: ignore[misc]
    """A table that knows which of its changelog records are on the way to the broker.

    Faust commits a source offset as soon as its record was acknowledged, although the
    changelog record may still wait in the producer's buffer, whose flush gives up after
    a tenth of a second; killed in between, the row would be on this disk only.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Begin with none; as Faust's.

        Args:
            *arguments: Faust's.
            **options: Faust's.
        """
        super().__init__(*arguments, **options)
        self.unsent: list[asyncio.Future[Any]] = []
        self.is_older: IsOlder | None = None
        """Says of two values of a key whether the first is the older one."""

    def apply_changelog_batch(self, batch: Iterable[Any]) -> None:
        """Recover rows; never puts an older one over a newer.

        A worker that was cut off may write what it had after its successor wrote more,
        and a kill leaves rows on the disk that the changelog does not have yet.

        Args:
            batch: Faust's events of the changelog.
        """
        events = list(batch)
        if self.is_older is not None:
            known: dict[tuple[int, bytes], bytes | None] = {}
            for event in events:
                message = event.message
                place = (message.partition, message.key)
                if place not in known:
                    known[place] = self.data._db_for_partition(message.partition).get(message.key)  # noqa: SLF001 - there is no event to read by
                row = known[place]
                if row is not None and message.value and self.is_older(message.value, row):
                    message.value = row
                known[place] = message.value
        super().apply_changelog_batch(events)

    def send_changelog(self, *arguments: Any, **options: Any) -> Any:
        """Send, and remember.

        Args:
            *arguments: Faust's.
            **options: Faust's.

        Returns:
            The future of the broker's acknowledgement.
        """
        sent = super().send_changelog(*arguments, **options)
        self.unsent.append(sent)
        return sent

    def _on_changelog_sent(self, fut: Any) -> None:
        # the offset from which recovery reads. Faust takes that of any record it sent: a worker
        # that was cut off, and sends what it still had in hand, would pass over its successor's
        sent = fut.result()
        known = self.data.persisted_offset(sent.topic_partition)
        if sent.offset == (-1 if known is None else known) + 1:
            self.data.set_persisted_offset(sent.topic_partition, sent.offset)


def ack_when_sent(app: Any, event: Any, *sent: "asyncio.Future[Any]") -> None:
    """Acknowledge a record of a stream once the broker has what it caused.

    For a stream with ``noack``. In whatever order records are acknowledged, offsets are
    committed up to the first that is not.

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


def make_table(app: Any, name: str, shape: TopicShape, is_older: IsOlder | None = None) -> Any:
    """Make a table of bytes in the app's data directory, RocksDB through rocksdict.

    Args:
        app: Of ``make_app``.
        name: Of the table.
        shape: Of the topic that it goes with, partition by partition.
        is_older: Says of two values of a key whether the first is the older one, so that
            recovery never goes back; None takes the changelog's order.
    """
    table = app.Table(
        name,
        key_type=bytes,
        value_type=bytes,
        partitions=shape.partitions,
        options=dict(_ROCKS),
    )
    table.is_older = is_older
    return table
