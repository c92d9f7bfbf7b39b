"""Features of a tunnel's topic as typed records, for Faust programs.

::

    app = faust.App("trends", broker="kafka://...")
    topic = features_topic(app, "shop-features")
    views = app.Table("views", default=int).hopping(600, 60, expires=3600)

    @app.agent(topic)
    async def count(stream):
        async for made in features(stream):
            views[made.feature["item"]] += 1

A record of the topic may come more than once: ``key`` is the same for each delivery.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any

import faust
import msgspec

from walle_stream.errors import EnvelopeError
from walle_stream.wire.record import decode_record
from walle_stream.wire.report_record import is_report_record

_log = logging.getLogger(__name__)


class Feature(faust.Record):  # type: ignore[misc]
    """A feature of a device."""

    key: str
    """The same for each delivery of the feature."""
    device_id: str
    sequence_number: int
    """Number per device, contiguous from 1 in each data directory."""
    task: str
    task_version: str
    event_time_ms: int
    feature: Any
    """The object that the script emitted."""
    encoding: bytes
    """Encoding beside the feature; may be empty."""


def features_topic(app: Any, name: str) -> Any:
    """Return a tunnel's topic (``spec.tunnel.topic``), for ``features``."""
    raw = {"key_serializer": "raw", "value_serializer": "raw", "allow_empty": True}
    return app.topic(name, key_type=bytes, value_type=bytes, **raw)


async def features(stream: Any) -> AsyncIterator[Feature]:
    """Yield the features of a stream of ``features_topic``, in the topic's order.

    Calls and reports are skipped. Other records are skipped with a line in the log.
    """
    async for event in stream.events():
        message = event.message
        headers = list((event.headers or {}).items())
        if is_report_record(headers):
            continue
        try:
            record, value = decode_record(message.key, message.value, headers)
            values = msgspec.json.decode(value)
        except (EnvelopeError, msgspec.DecodeError, RecursionError) as error:
            place = f"{message.topic}[{message.partition}]@{message.offset}"
            _log.warning("%s is not a feature: %s", place, error)
            continue
        if not record.service:
            yield Feature(
                key=record.idempotency_key,
                device_id=record.device_id,
                sequence_number=record.sequence_number,
                task=record.task,
                task_version=record.task_version,
                event_time_ms=record.event_time_ms,
                feature=values,
                encoding=record.encoding,
            )
