"""Runs the baseline's app in this process until it is stopped: ``bench/cloud_baseline.py``.

An app binds the event loop in which it is made: all of it happens here.
"""

import argparse
import asyncio
from pathlib import Path
from typing import IO, Any, Final, override

import faust
from aiokafka.admin import AIOKafkaAdminClient
from yarl import URL

from ipv_parts.sessions import BaselinePipeline, add_sessions, baseline_of
from walle_connectors.probe import probe_brokers
from walle_stream.errors import TopicError, TunnelError, WalleError
from walle_stream.spec.loader import LoadedPipeline

_BUFFER_MESSAGES: Final = 2_000
_LINGER_S: Final = 0.003

# Faust's own are for one database: 2 GiB of cache and 64 MiB of writes, per partition
_ROCKS: Final = {
    "driver": "rocksdict",
    "block_cache_size": 16 * 2**20,
    "write_buffer_size": 8 * 2**20,
    "max_open_files": 256,
}


def run_baseline(
    loaded: LoadedPipeline[Any], data_dir: Path, options: argparse.Namespace, out: IO[str]
) -> int:
    """Run the app; blocks until a signal.

    The data directory is of this worker alone; ``out`` gets one line when the app runs.

    Raises:
        SpecFileError: The baseline cannot do this pipeline.
        ScriptError: The task's script cannot be loaded.
        BrokerUnreachableError: No broker answers, or TLS is refused.
        TopicError: A topic is missing, or the two have other numbers of partitions.
        TunnelError: Faust failed.
    """
    pipeline = baseline_of(loaded)
    probe_brokers(pipeline.events)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    partitions = loop.run_until_complete(_partitions(pipeline))
    app = _make_app(pipeline, partitions, data_dir, options)
    line = f"baseline: ready, http://{options.web_host}:{options.web_port}/\n"
    worker = _Worker(app, loop, line, out)
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        reason = worker.crash_reason or app.crash_reason
        if reason is None and end.code in {0, None}:
            return 0
        if isinstance(reason, WalleError):
            raise reason from end
        raise TunnelError(
            f"the baseline failed ({reason or end.__context__!r}): start it again"
        ) from reason
    return 0


async def _partitions(pipeline: BaselinePipeline) -> int:
    counts = []
    for part, topic in (
        (pipeline.features, pipeline.features_topic),
        (pipeline.events, pipeline.events_topic),
    ):
        context = part.tls_context()
        admin = AIOKafkaAdminClient(
            bootstrap_servers=list(part.brokers),
            client_id=part.client_id,
            security_protocol="SSL" if context else "PLAINTEXT",
            ssl_context=context,
        )
        await admin.start()
        try:
            [found] = await admin.describe_topics([topic])
        finally:
            await admin.close()
        if found["error_code"]:
            raise TopicError(
                f"topic {topic!r} is not on {', '.join(part.brokers)}, or may not be seen: "
                "create it with walle topics FILE --create, or allow DESCRIBE",
                topic,
            )
        counts.append(len(found["partitions"]))
    if len(set(counts)) > 1:
        raise TopicError(
            f"topic {pipeline.events_topic!r} has {counts[1]} partitions and "
            f"{pipeline.features_topic!r} {counts[0]}: features go to the partition of their "
            "events, make them equal",
            pipeline.features_topic,
        )
    return counts[0]


def _make_app(
    pipeline: BaselinePipeline, partitions: int, data_dir: Path, options: argparse.Namespace
) -> Any:
    part = pipeline.events
    context = part.tls_context()
    app = faust.App(
        pipeline.group,
        broker=[URL(f"kafka://{broker}") for broker in part.brokers],
        broker_credentials=faust.SSLCredentials(context=context) if context else None,
        broker_client_id=part.client_id,
        consumer_auto_offset_reset="earliest",
        processing_guarantee="at_least_once",
        # every row is a record: one request each would cost more than the work
        producer_linger=_LINGER_S,
        store="rocksdb://",
        table_standby_replicas=0,
        datadir=data_dir,
        topic_partitions=partitions,
        topic_disable_leader=True,
        web_host=options.web_host,
        web_bind=options.web_host,
        web_port=options.web_port,
        worker_redirect_stdouts=False,
        autodiscover=False,
    )

    @app.on_partitions_assigned.connect  # type: ignore[untyped-decorator]
    async def on_assigned(app: Any, *_: Any, **__: Any) -> None:
        # what is in it waits for the broker; Faust's 100 stop the stream all the time
        app.producer.buffer.max_messages = _BUFFER_MESSAGES

    plain = {"key_type": bytes, "value_type": bytes, "partitions": partitions}
    visits, profiles = (
        app.Table(name, options=dict(_ROCKS), **plain) for name in ("visits", "profiles")
    )
    add_sessions(app, pipeline, visits, profiles)
    return app


class _Worker(faust.Worker):  # type: ignore[misc]
    def __init__(self, app: Any, loop: asyncio.AbstractEventLoop, line: str, out: IO[str]) -> None:
        # the command line set up its own log
        super().__init__(app, loop=loop, quiet=True, redirect_stdouts=False, override_logging=False)
        self._line = line
        self._out = out

    @override
    async def on_startup_finished(self) -> None:
        await super().on_startup_finished()
        self._out.write(self._line)
        self._out.flush()
