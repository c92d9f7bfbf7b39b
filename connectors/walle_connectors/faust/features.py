"""The app of ``walle cloud``: features from the tunnel's topic into a table on RocksDB.

Exactly-once effect over Faust's at-least-once: the table's value of a device holds the
numbers that were seen together with what they brought (``device_row``); a source offset is
committed only when the broker has the changelog's records of it (``tables.ack_when_sent``);
a record that comes again writes its row again (``merging``); recovery never puts an older
row over a newer (``is_older``). What a worker that was cut off still writes behind its
successor hides nothing (``tables``). Offsets are acknowledged in their order (``acks``).

What devices report goes to a release service (``reports``) where there is one, and nowhere else.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any, Final

import faust

from walle_connectors.faust.acks import AckOrder
from walle_connectors.faust.apps import WorkerOptions, make_app, make_topic
from walle_connectors.faust.continuity import ReadOrder
from walle_connectors.faust.device_row import is_older_row
from walle_connectors.faust.letters import RefusedRecords
from walle_connectors.faust.merging import KEEP_DEFAULT, Merger, latest_epoch
from walle_connectors.faust.preflight import Tables, TopicShape
from walle_connectors.faust.reports import ReportOutlet
from walle_connectors.faust.settings import CloudPipeline
from walle_connectors.faust.tables import ack_when_sent, make_table
from walle_stream.errors import EnvelopeError, EpochOverError
from walle_stream.wire.report_record import is_report_record

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FeaturesApp:
    """The app with what its pages show."""

    app: Any
    devices: Any
    """Faust table: device to row."""
    merger: Merger
    reports: ReportOutlet | None = None
    """Sends what devices report; None where nobody takes it."""


TABLES: Final = ("devices", "epochs")
"""Names of the app's tables."""


def tables_of(pipeline: CloudPipeline) -> Tables:
    """Return the app's tables; its name is that of their group."""
    return Tables(f"walle-cloud-{pipeline.name}", TABLES)


def make_features_app(
    pipeline: CloudPipeline,
    shape: TopicShape,
    options: WorkerOptions,
    keep: int = KEEP_DEFAULT,
    reports: ReportOutlet | None = None,
) -> FeaturesApp:
    """Make the app; nothing is opened or connected yet.

    Args:
        pipeline: Names and topics.
        shape: Of the features' topic, as the broker has it.
        options: Of the worker.
        keep: Latest features per device and task that are kept as they are, ≥ 1.
        reports: Gets what devices report; None: it is counted and passed over.
    """
    app = make_app(tables_of(pipeline).group, pipeline.features, shape, options)
    topic = make_topic(app, pipeline.features.topic, shape)
    devices = make_table(app, TABLES[0], shape, is_older_row, pipeline.features)
    epochs = make_table(
        app,
        TABLES[1],
        shape,
        lambda one, other: latest_epoch(one) < latest_epoch(other),
        pipeline.features,
    )
    merger = Merger(devices, epochs, keep)
    order = ReadOrder(pipeline.features.topic)
    acks = AckOrder(lambda: app.consumer.unacked)
    letters: RefusedRecords | None = None
    if pipeline.letters is not None:
        letters = RefusedRecords(pipeline.letters, pipeline.name, tables_of(pipeline).group)
    intake = _Intake(merger, letters, reports)

    @app.on_partitions_assigned.connect  # type: ignore[untyped-decorator]
    async def on_assigned(*_: Any, **__: Any) -> None:
        merger.forget_confirmed()
        acks.begin_anew()

    @app.agent(topic, name="merge")  # type: ignore[untyped-decorator]
    async def merge(stream: faust.Stream[Any]) -> None:
        async for event in stream.noack().events():
            held = acks.take(event)
            try:
                await _expect_next(app, order, event.message)
                delivered = await intake.take(event.message)
            except Exception as error:
                # Faust would restart the agent behind this record: it would be lost
                await app.crash(error)
                raise
            if delivered:
                held.set_aside()
            ack_when_sent(app, held, *delivered)

    _attach(app, letters, reports)
    return FeaturesApp(app, devices, merger, reports)


def _attach(app: Any, letters: RefusedRecords | None, reports: ReportOutlet | None) -> None:
    if letters is not None:

        @app.on_before_shutdown.connect  # type: ignore[untyped-decorator]
        async def on_end(*_: Any, **__: Any) -> None:
            await letters.close()

    if reports is not None:

        @app.task  # type: ignore[untyped-decorator]
        async def send_reports() -> None:
            await reports.run(app.http_client)


class _Intake:
    # what becomes of one record

    def __init__(
        self, merger: Merger, letters: RefusedRecords | None, reports: ReportOutlet | None
    ) -> None:
        self._merger = merger
        self._letters = letters
        self._reports = reports

    async def take(self, message: Any) -> list[asyncio.Future[None]]:
        # gives what its offset has to wait for, beside the tables
        headers: Any = message.headers or ()
        record = (message.partition, message.key, message.value, headers, message.offset)
        is_report = is_report_record(headers)
        try:
            if is_report:
                frame = self._merger.take_report(*record)
                return [] if self._reports is None else [self._reports.put(frame)]
            self._merger.merge(*record)
        except EnvelopeError as error:
            text = "%s/%d/%d refused: %s"
            _log.warning(text, message.topic, message.partition, message.offset, error)
            # what a report says nobody would work on again
            is_kept = not is_report and not isinstance(error, EpochOverError)
            if self._letters is not None and is_kept:
                await self._letters.put(message, error)
        return []


async def _expect_next(app: Any, order: ReadOrder, message: Any) -> None:
    # where a partition begins is asked only if something seems to be missing
    committed = app.consumer._committed_offset[message.tp]  # noqa: SLF001 - in no public attribute
    if not order.takes(message.partition, message.offset, committed):
        first = (await app.consumer.earliest_offsets(message.tp))[message.tp]
        order.expect(message.partition, message.offset, first)
