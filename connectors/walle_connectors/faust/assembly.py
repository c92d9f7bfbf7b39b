"""Puts a worker together from the command's options."""

import argparse
from pathlib import Path
from typing import IO, Any

from yarl import URL

from walle_connectors.faust.apps import WorkerOptions
from walle_connectors.faust.baseline import baseline_tables, make_baseline_app
from walle_connectors.faust.features import make_features_app, tables_of
from walle_connectors.faust.log_lines import set_up_logging
from walle_connectors.faust.place import advertised, check_address, own_data_dir
from walle_connectors.faust.preflight import look_at_topic
from walle_connectors.faust.reports import ReportOutlet
from walle_connectors.faust.settings import (
    BaselinePipeline,
    CloudPipeline,
    baseline_of,
    load_cloud_pipeline,
)
from walle_connectors.faust.watchdog import Watchdog
from walle_connectors.faust.web import add_pages
from walle_connectors.faust.worker import run_app
from walle_stream.errors import SpecFileError, TopicError
from walle_stream.wire.bearer import token_from


def run_cloud(options: argparse.Namespace, out: IO[str]) -> int:
    """Run the worker that the options ask for; blocks until a signal.

    Args:
        options: Of ``walle cloud``.
        out: One line goes there when the worker is ready.

    Raises:
        WalleError: See ``command.run``.
    """
    pipeline = load_cloud_pipeline(options.file, options.set)
    set_up_logging(options.log_level, pipeline.masked_values)
    kind = "baseline" if options.baseline else "cloud"
    path = options.data_dir or Path("walle-data") / f"{pipeline.name}-{kind}"
    with own_data_dir(path) as data_dir:
        check_address(options.web_host, options.web_port)
        worker = WorkerOptions(
            data_dir=data_dir,
            web_host=options.web_host,
            web_port=options.web_port,
            advertise=advertised(options.advertise, options.web_port),
            patience_ms=options.patience * 1000,
        )
        return _run(pipeline, worker, options, out)


def _run(
    pipeline: CloudPipeline, worker: WorkerOptions, options: argparse.Namespace, out: IO[str]
) -> int:
    reports = _outlet(options, worker) if options.reports else None

    async def make() -> tuple[Any, Watchdog]:
        if options.baseline:
            return await _baseline(baseline_of(pipeline), worker)
        return await _features(pipeline, worker, options.keep, reports)

    def ready(_app: Any) -> None:
        out.write(f"walle cloud: ready, {worker.listens_at}/healthz\n")
        out.flush()

    return run_app(make, ready)


def _outlet(options: argparse.Namespace, worker: WorkerOptions) -> ReportOutlet:
    token = token_from(options.reports_token)
    if token is not None and URL(options.reports).user is not None:
        raise SpecFileError("--reports: its address has a user, and there is a token: give one")
    # the watchdog must not take an offset that waits for the service for one that stalls
    return ReportOutlet(options.reports, worker.patience_ms / 1000 / 2, token=token)


async def _features(
    pipeline: CloudPipeline, options: WorkerOptions, keep: int, reports: ReportOutlet | None
) -> tuple[Any, Watchdog]:
    shape = await look_at_topic(pipeline.features, tables_of(pipeline))
    if pipeline.letters is not None:
        await look_at_topic(pipeline.letters)
    made = make_features_app(pipeline, shape, options, keep, reports)
    watchdog = Watchdog(made.app, pipeline.features, options.patience_ms)
    add_pages(made, watchdog)
    return made.app, watchdog


async def _baseline(pipeline: BaselinePipeline, options: WorkerOptions) -> tuple[Any, Watchdog]:
    features = await look_at_topic(pipeline.features)
    shape = await look_at_topic(pipeline.events)
    if features.partitions != shape.partitions:
        raise TopicError(
            f"topic {pipeline.events.topic!r} has {shape.partitions} partitions and "
            f"{pipeline.features.topic!r} {features.partitions}: features go to the partition of "
            "their events, make them equal",
            pipeline.features.topic,
        )
    await look_at_topic(pipeline.events, baseline_tables(pipeline))
    app = make_baseline_app(pipeline, shape, options)
    return app, Watchdog(app, pipeline.events, options.patience_ms)
