"""The cloud-only baseline: raw events to the cloud, sessionised there into the same features.

Raw events are keyed by device, so one worker has all of a device's events in order and
nothing is grouped anew; two tables hold what a device needs: ``visits`` its open pages
(written at every event), ``profiles`` its numbers and the task's state (written when a
page has ended). The exit event makes the feature at once, with no window behind it. What
the sessions do and do not do with late, doubled and nested events stands in ``visits``.

At least once, as Faust programs are: after a kill a feature may be made again, with the
same number, which the table of ``features`` drops; one that was on its way when its
page's deletion had already arrived is lost. (Faust's transactions do not cover topics
that the app does not read.)
"""

import logging
from hashlib import blake2b
from typing import Any, Final

import faust
import msgspec

from walle_connectors.faust.apps import WorkerOptions, make_app, make_topic
from walle_connectors.faust.cloud_task import CloudTask
from walle_connectors.faust.preflight import Tables, TopicShape
from walle_connectors.faust.settings import BaselinePipeline
from walle_connectors.faust.tables import ack_when_sent, make_table
from walle_connectors.faust.visits import DeviceVisits, OpenVisit, RawEvent
from walle_stream.errors import EnvelopeError
from walle_stream.wire.record import RecordEnvelope, encode_record

_log = logging.getLogger(__name__)

_TABLES: Final = ("visits", "profiles")


class Profile(msgspec.Struct, array_like=True):
    """What is kept of a device beside its open pages; starts empty."""

    last_number: int = 0
    """Of the device's features."""
    state: dict[str, Any] = {}
    """Of the task."""


class Sessions:
    """Turns raw events into records of features; pure but for the tables."""

    def __init__(self, pipeline: BaselinePipeline, visits: Any, profiles: Any) -> None:
        """Load the task's script.

        Args:
            pipeline: Policy and task.
            visits: Table: device to open pages.
            profiles: Table: device to profile.

        Raises:
            ScriptError: The script cannot be loaded.
        """
        self._policy = pipeline.policy
        self._task = CloudTask(pipeline.task)
        self._visits = visits
        self._profiles = profiles
        self._incarnation = blake2b(
            baseline_tables(pipeline).group.encode(), digest_size=8
        ).hexdigest()
        self._decode_event = msgspec.json.Decoder(RawEvent).decode
        self._decode_visits = msgspec.msgpack.Decoder(DeviceVisits).decode
        self._decode_profile = msgspec.msgpack.Decoder(Profile).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def accept(
        self, partition: int, key: bytes | None, value: bytes | None, time_ms: int
    ) -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
        """Take a raw event.

        Args:
            partition: Of the topic.
            key: The device.
            value: JSON.
            time_ms: The record's.

        Returns:
            Records of the features that it made.

        Raises:
            EnvelopeError: It is no event.
        """
        try:
            event = self._decode_event(value or b"")
            device_id = (key or b"").decode()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise EnvelopeError(f"no event: {error}") from error
        if not key or not device_id:
            raise EnvelopeError("a raw event has no key: the topic must be keyed by device")
        kept = self._visits.get(key)
        visits = DeviceVisits() if kept is None else self._decode_visits(kept)
        ended = visits.accept(event, time_ms, self._policy)
        records = self._records(partition, key, device_id, ended) if ended else []
        after = self._encode(visits) if visits.visits else None
        if after is not None:
            if after != kept:
                self._visits[key] = after
        elif kept is not None:
            del self._visits[key]
        return records

    def _records(
        self, partition: int, key: bytes, device_id: str, ended: list[OpenVisit]
    ) -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
        kept = self._profiles.get(key)
        profile = Profile() if kept is None else self._decode_profile(kept)
        records = []
        for visit in ended:
            for feature, encoding in self._task.run(device_id, visit, profile.state):
                profile.last_number += 1
                envelope = RecordEnvelope(
                    device_id=device_id,
                    incarnation=self._incarnation,
                    partition=partition,
                    epoch=1,
                    sequence_number=profile.last_number,
                    task=self._task.name,
                    task_version=self._task.version,
                    event_time_ms=visit.rows[-1][2],
                    encoding=encoding,
                )
                records.append(encode_record(envelope, feature))
        self._profiles[key] = self._encode(profile)
        return records


def baseline_tables(pipeline: BaselinePipeline) -> Tables:
    """Return the app's tables; its name is that of their group."""
    return Tables(f"walle-baseline-{pipeline.name}", _TABLES)


def make_baseline_app(pipeline: BaselinePipeline, shape: TopicShape, options: WorkerOptions) -> Any:
    """Make the app; nothing is opened or connected yet.

    Args:
        pipeline: Names, topics and task.
        shape: Of the topics of raw events and of features: they have as many partitions.
        options: Of the worker.

    Raises:
        ScriptError: The task's script cannot be loaded.
    """
    app = make_app(baseline_tables(pipeline).group, pipeline.events, shape, options)
    events = make_topic(app, pipeline.events.topic, shape)
    features = make_topic(app, pipeline.features.topic, shape)
    sessions = Sessions(pipeline, *(make_table(app, name, shape) for name in _TABLES))

    @app.agent(events, name="sessions")  # type: ignore[untyped-decorator]
    async def run(stream: faust.Stream[Any]) -> None:
        async for event in stream.noack().events():
            message = event.message
            try:
                records = sessions.accept(
                    message.partition, message.key, message.value, int(message.timestamp * 1000)
                )
                sent = [
                    await features.send(
                        key=key, value=value, headers=headers, partition=message.partition
                    )
                    for key, value, headers in records
                ]
            except EnvelopeError as error:
                _log.warning(
                    "%s/%d/%d refused: %s", message.topic, message.partition, message.offset, error
                )
                sent = []
            except Exception as error:
                # Faust would restart the agent behind this event: it would be lost
                await app.crash(error)
                raise
            ack_when_sent(app, event, *sent)

    return app
