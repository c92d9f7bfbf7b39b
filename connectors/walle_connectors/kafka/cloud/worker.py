"""A worker of the cloud side in this process, until SIGTERM or SIGINT.

On the signal the worker takes no more records, commits its offsets to the group, closes its tables
and exits with 0. A second signal ends the process at once. The worker waits for a broker that is
down.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event, Timer
from typing import IO, Any, Final

from walle_connectors.kafka.cloud.letters import RefusedRecords
from walle_connectors.kafka.cloud.owners import Owners
from walle_connectors.kafka.cloud.reader import CloudReader, WorkerClient
from walle_connectors.kafka.cluster import NeededTopic
from walle_connectors.kafka.dead_letters.model import KafkaDeadLetterModel
from walle_connectors.kafka.dead_letters.sink import KafkaDeadLetterSink
from walle_connectors.kafka.downlink import KafkaDownlinkSender
from walle_connectors.kafka.drivers import driver_problem, open_group
from walle_connectors.kafka.source.model import KafkaSourceModel
from walle_connectors.kafka.topics import check_topics, expect_kept, tunnel_topics
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.clock import monotonic_ms
from walle_stream.cloud.answering import AnsweringThread
from walle_stream.cloud.lookups import Group, LookUps, serve_look_ups
from walle_stream.cloud.partitions import Partitions, TableOptions
from walle_stream.cloud.place import advertised
from walle_stream.cloud.reports import ReportOutlet
from walle_stream.cloud.service_pool import Served
from walle_stream.cloud.sink_pump import serving_sinks
from walle_stream.errors import (
    BrokerUnreachableError,
    SourceError,
    SpecFileError,
    StopTimeoutError,
    TopicError,
    TunnelError,
)
from walle_stream.spec.loader import LoadedPipeline
from walle_stream.store.growing import of_count
from walle_stream.store.objects import open_objects
from walle_stream.store.snapshots import PartitionSnapshots
from walle_stream.wire.bearer import token_from

_log = logging.getLogger(__name__)

STOP_S: Final = 30.0

_SECOND_SIGNAL_EXIT: Final = 130
_SESSION: Final = "10s"
_AGAIN_S: Final = 0.5
_AGAIN_MAX_S: Final = 10.0
_LOST_MS: Final = 30_000.0
"""Longest time that a worker without its partitions waits for its client to recover."""


def run_cloud(
    loaded: LoadedPipeline[Any], data_dir: Path, options: argparse.Namespace, out: IO[str]
) -> int:
    """Run a worker; blocks until a signal.

    This worker alone uses the data directory. ``out`` gets one line when the worker has its
    partitions.

    Raises:
        SpecFileError: The pipeline's tunnel does not use a broker.
        MetricsAddressError: The server for look-ups cannot listen on its address.
        BrokerUnreachableError: No broker answers at the start, or TLS is refused.
        TopicError: A topic is missing.
        TunnelError: Reading of the topic failed or makes no progress.
        StoreError: A table cannot be used.
    """
    tunnel = loaded.tunnel
    if not isinstance(tunnel, KafkaTunnelModel):
        raise SpecFileError(
            f"{options.file}: spec.tunnel.connector is {loaded.pipeline.spec.tunnel.connector!r}: "
            "the cloud side of that tunnel is part of walle run; use a pipeline whose tunnel is "
            "kafka"
        )
    problem = driver_problem(tunnel.driver, "spec.tunnel.driver")
    if problem:
        raise TunnelError(problem)
    name = loaded.pipeline.metadata.name
    group = f"walle-cloud-{name}"
    host, port = advertised(options.advertise, options.web_port) or (
        options.web_host,
        options.web_port,
    )
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    services: Mapping[str, Served] = options.services(loaded)
    stopped = _Signals().stopped
    with ExitStack() as stack:
        needed = NeededTopic(tunnel.topic, "spec.tunnel.topic")
        count = check_topics(tunnel, [needed])[tunnel.topic].partitions
        _check_kept(tunnel, needed, options.snapshot_every if options.snapshots else 0)
        kept = _table_options(options, tunnel, of_count(Path(name), count), tuple(loaded.sinks))
        tables = Partitions(of_count(data_dir, count), address, kept)
        stack.callback(tables.close)
        calls = None
        if tunnel.down_topic:
            calls = _calls(stack, tunnel, count, tables, services)
        reports = _reports(stack, options, tables)
        letters = None
        if isinstance(loaded.dead_letters, KafkaDeadLetterModel):
            sink = KafkaDeadLetterSink(loaded.dead_letters)
            letters = RefusedRecords(sink, name, group, stopped)
            stack.callback(letters.close)
        of_group = Group(group, count, Owners(tunnel, group, tunnel.topic))
        pumps = stack.enter_context(serving_sinks(loaded, tables.tables))

        def more_health() -> dict[str, Any]:
            lags = {pump.name: pump.lag for pump in pumps}
            answered = {} if calls is None else calls.counts
            return {**_report_health(tables, reports), "sinks": lags, "services": answered}

        look_ups = LookUps(tables, of_group, options.keep, more_health)
        server = serve_look_ups(options.web_host, options.web_port, look_ups)
        stack.callback(server.close)
        worker = _Worker(
            _as_source(tunnel, group, options), tables, letters, calls, options.patience
        )
        where = f"[{options.web_host}]" if ":" in options.web_host else options.web_host
        worker.run(stopped, f"walle cloud: ready, http://{where}:{options.web_port}/healthz\n", out)
    return 0


def _check_kept(tunnel: KafkaTunnelModel, needed: NeededTopic, snapshot_every_s: int) -> None:
    # a partition that moves is restored from a snapshot and the records after it
    kept_ms = int(expect_kept(tunnel, needed).get("retention.ms", "-1"))
    if 0 <= kept_ms < 2 * snapshot_every_s * 1000:
        raise TopicError(
            f"topic {needed.name!r} ({needed.key}) keeps records for {kept_ms / 1000:g} s, less "
            "than two intervals between snapshots: raise retention.ms, or lower --snapshot-every",
            needed.name,
        )


class _Worker:
    def __init__(
        self,
        model: KafkaSourceModel,
        tables: Partitions,
        letters: RefusedRecords | None,
        calls: AnsweringThread | None,
        patience_s: float,
    ) -> None:
        self._model = model
        self._tables = tables
        self._letters = letters
        self._calls = calls
        self._patience_s = patience_s
        self._line, self._out = "", sys.stdout  # printed once, when the worker has its partitions

    def run(self, stopped: Event, line: str, out: IO[str]) -> None:
        self._line, self._out = line, out
        pause_s = _AGAIN_S
        while not stopped.is_set():
            try:
                reader = self._join()
                pause_s = _AGAIN_S
                try:
                    self._read(reader, stopped)
                finally:
                    self._tables.joined(is_member=False)
                    reader.close()
            except BrokerUnreachableError as error:
                if self._line:
                    raise
                _log.warning("%s; the next attempt is in %g s", error, pause_s)
                stopped.wait(pause_s)
                pause_s = min(2 * pause_s, _AGAIN_MAX_S)
            except SourceError as error:
                raise TunnelError(f"the cloud side ended: {error}") from error
            except StopTimeoutError:
                if not stopped.is_set():
                    raise

    def _read(self, reader: CloudReader, stopped: Event) -> None:
        well_ms = monotonic_ms()
        while not stopped.is_set():
            reader.read()
            if self._calls is not None:
                self._calls.check()
            now_ms = monotonic_ms()
            if not self._tables.problem:
                well_ms = now_ms
                if self._line:
                    self._out.write(self._line)
                    self._out.flush()
                    self._line = ""
            elif now_ms - well_ms > _LOST_MS and not self._line:
                # the broker is down, or the client is stuck
                _log.warning("this worker joins its group again")
                return

    def _join(self) -> CloudReader:
        client = WorkerClient(self._model, is_member=True, named_by="spec.tunnel.topic")
        try:
            group = open_group(client, self._model, has_headers=True)
            return CloudReader(
                client, group, self._model, self._tables, self._letters, self._patience_s * 1000.0
            )
        except BaseException:
            client.close()
            raise


class _Signals:
    # the first signal ends the worker, the second one the process
    def __init__(self) -> None:
        self.stopped = Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: Any) -> None:
        if self.stopped.is_set():
            os._exit(_SECOND_SIGNAL_EXIT)
        self.stopped.set()
        timer = Timer(STOP_S, _give_up)
        timer.daemon = True
        timer.start()


def _give_up() -> None:
    sys.stderr.write(
        f"walle: the cloud side did not stop within {STOP_S:.0f} s: restart it, no data is lost\n"
    )
    sys.stderr.flush()
    os._exit(StopTimeoutError.exit_code)


def _as_source(
    tunnel: KafkaTunnelModel, group: str, options: argparse.Namespace
) -> KafkaSourceModel:
    client_id = tunnel.client_id if "client_id" in tunnel.model_fields_set else "walle-cloud"
    keys: dict[str, Any] = {
        **tunnel.reach(),
        "client_id": client_id,
        "topic": tunnel.topic,
        "group": group,
        # after a kill the group waits this long for the dead worker
        "sessionTimeout": _SESSION,
        "onMissingOffset": options.on_missing,
    }
    return KafkaSourceModel.model_validate(keys)


def _table_options(
    options: argparse.Namespace, tunnel: KafkaTunnelModel, name: Path, sinks: Sequence[str]
) -> TableOptions:
    objects = None if options.snapshots is None else open_objects(options.snapshots)
    return TableOptions(
        keep=options.keep,
        keeps_reports=options.reports is not None,
        keeps_calls=tunnel.down_topic is not None,
        sinks=sinks,
        snapshots=None if objects is None else partial(PartitionSnapshots, objects, str(name)),
        snapshot_every_ms=options.snapshot_every * 1000.0,
    )


def _calls(
    stack: ExitStack,
    tunnel: KafkaTunnelModel,
    partitions: int,
    tables: Partitions,
    services: Mapping[str, Served],
) -> AnsweringThread:
    check_topics(tunnel, tunnel_topics(tunnel, partitions))
    # ``CloudCalls`` limits the messages in flight
    sender = KafkaDownlinkSender(tunnel, sys.maxsize, partitions, connects_early=True)
    stack.callback(sender.close)
    calls = AnsweringThread(tables.tables, sender, services)
    stack.callback(calls.close)
    tables.on_call = calls.wake
    return calls


def _reports(
    stack: ExitStack, options: argparse.Namespace, tables: Partitions
) -> ReportOutlet | None:
    if options.reports is None:
        return None
    token = token_from(options.reports_token)
    if token is not None and "@" in options.reports.partition("//")[2].partition("/")[0]:
        raise SpecFileError(
            "--reports: the URL has a user, and there is also a token: give only one"
        )
    outlet = ReportOutlet(options.reports, tables.tables, token)
    stack.callback(outlet.close)
    return outlet


def _report_health(tables: Partitions, outlet: ReportOutlet | None) -> dict[str, Any]:
    if outlet is None:
        return {"reports": None}
    waiting, no_room = tables.report_counts
    return {
        "reports": {"sent": outlet.sent, "dropped": outlet.dropped + no_room, "waiting": waiting}
    }
