"""The app of ``walle cloud``: features from the tunnel's topic into a table on RocksDB.

Exactly-once effect over Faust's at-least-once: the table's value of a device holds the
numbers that were seen together with what they brought (``device_row``); a source offset is
committed only when the broker has the changelog's records of it (``tables.ack_when_sent``);
a record that comes again writes its row again (``merging``); recovery never puts an older
row over a newer (``is_older``). What a worker that was cut off still writes behind its
successor hides nothing (``tables``).
"""

import logging
from dataclasses import dataclass
from typing import Any, Final

import faust

from walle_connectors.faust.apps import WorkerOptions, make_app, make_topic
from walle_connectors.faust.continuity import ReadOrder
from walle_connectors.faust.device_row import is_older_row
from walle_connectors.faust.letters import RefusedRecords
from walle_connectors.faust.merging import KEEP_DEFAULT, Merger, latest_epoch
from walle_connectors.faust.preflight import Tables, TopicShape
from walle_connectors.faust.settings import CloudPipeline
from walle_connectors.faust.tables import ack_when_sent, make_table
from walle_stream.errors import EnvelopeError, EpochOverError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FeaturesApp:
    """The app with what its pages show."""

    app: Any
    devices: Any
    """Faust table: device to row."""
    merger: Merger


TABLES: Final = ("devices", "epochs")
"""Names of the app's tables."""


def tables_of(pipeline: CloudPipeline) -> Tables:
    """Return the app's tables; its name is that of their group.

    Args:
        pipeline: Its name is in theirs.
    """
    return Tables(f"walle-cloud-{pipeline.name}", TABLES)


def make_features_app(
    pipeline: CloudPipeline, shape: TopicShape, options: WorkerOptions, keep: int = KEEP_DEFAULT
) -> FeaturesApp:
    """Make the app; nothing is opened or connected yet.

    Args:
        pipeline: Names and topics.
        shape: Of the features' topic, as the broker has it.
        options: Of the worker.
        keep: Latest features per device and task that are kept as they are, ≥ 1.
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
    letters: RefusedRecords | None = None
    if pipeline.letters is not None:
        letters = RefusedRecords(pipeline.letters, pipeline.name, tables_of(pipeline).group)

    @app.on_partitions_assigned.connect  # type: ignore[untyped-decorator]
    async def on_assigned(*_: Any, **__: Any) -> None:
        merger.forget_confirmed()

    @app.agent(topic, name="merge")  # type: ignore[untyped-decorator]
    async def merge(stream: faust.Stream[Any]) -> None:
        async for event in stream.noack().events():
            message = event.message
            try:
                await _expect_next(app, order, message)
                headers: Any = message.headers or ()
                merger.merge(message.partition, message.key, message.value, headers, message.offset)
            except EnvelopeError as error:
                text = "%s/%d/%d refused: %s"
                _log.warning(text, message.topic, message.partition, message.offset, error)
                if letters is not None and not isinstance(error, EpochOverError):
                    await letters.put(message, error)
            except Exception as error:
                # Faust would restart the agent behind this record: it would be lost
                await app.crash(error)
                raise
            ack_when_sent(app, event)

    if letters is not None:

        @app.on_before_shutdown.connect  # type: ignore[untyped-decorator]
        async def on_end(*_: Any, **__: Any) -> None:
            await letters.close()

    return FeaturesApp(app, devices, merger)


async def _expect_next(app: Any, order: ReadOrder, message: Any) -> None:
    # where a partition begins is asked only if something seems to be missing
    committed = app.consumer._committed_offset[message.tp]  # noqa: SLF001 - in no public attribute
    if not order.takes(message.partition, message.offset, committed):
        first = (await app.consumer.earliest_offsets(message.tp))[message.tp]
        order.expect(message.partition, message.offset, first)
