"""Makes Faust apps with our settings, and topics of bytes.

An app binds the event loop in which it is made; see ``worker``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import faust
from yarl import URL

from walle_connectors.faust.preflight import TopicShape
from walle_connectors.faust.settings import KafkaPart
from walle_connectors.faust.tables import TrackedTable
from walle_connectors.faust.watchdog import PATIENCE_MS_DEFAULT

WEB_PORT_DEFAULT: Final = 6066
"""Faust's own."""

_SESSION_S: Final = 10.0
_COMMIT_S: Final = 1.0
_BUFFER_MESSAGES: Final = 2_000
_LINGER_S: Final = 0.003


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker runs."""

    data_dir: Path
    """Of this worker alone."""
    web_host: str = "127.0.0.1"
    web_port: int = WEB_PORT_DEFAULT
    advertise: tuple[str, int] | None = None
    """Where other workers find its pages; None where it listens."""
    patience_ms: int = PATIENCE_MS_DEFAULT

    @property
    def listens_at(self) -> URL:
        """Where its pages are on this machine."""
        return URL.build(scheme="http", host=self.web_host, port=self.web_port)

    @property
    def found_at(self) -> URL:
        """Where other workers find them."""
        host, port = self.advertise or (self.web_host, self.web_port)
        return URL.build(scheme="http", host=host, port=port)


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
        canonical_url=options.found_at,
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
