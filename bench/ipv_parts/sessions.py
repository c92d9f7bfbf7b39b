"""The cloud-only baseline: raw events to the cloud, sessionised there into the same features.

Raw events are keyed by device, so one worker has all events of a device in order, and no step
regroups them. Two tables have the data of a device: ``visits`` its open pages (written at every
event), ``profiles`` its numbers and the task's state (written when a page has ended). The exit
event makes the feature at once, with no window behind it. What the sessions do and do not do with
late, doubled and nested events stands in ``visits``.

The guarantee is at least once, as usual with Faust. After a kill a feature may be made again with
the same number, and the cloud side drops it. A feature in flight is lost if its page's deletion has
already arrived. (Faust's transactions do not cover topics that the app does not read.)
"""

import logging
from hashlib import blake2b
from typing import Any

import msgspec

from ipv_parts.cloud_task import CloudTask
from ipv_parts.visits import DeviceVisits, OpenVisit, RawEvent, VisitPolicy
from walle_connectors.brokers import Connection
from walle_stream.errors import EnvelopeError, SpecFileError
from walle_stream.spec.loader import LoadedPipeline
from walle_stream.spec.models import Task
from walle_stream.wire.record import RecordEnvelope, encode_record

_log = logging.getLogger(__name__)


class BaselinePipeline(msgspec.Struct, frozen=True):
    """A pipeline as the cloud-only baseline sees it."""

    name: str
    features: Connection
    features_topic: str
    events: Connection
    events_topic: str
    task: Task
    policy: VisitPolicy

    @property
    def group(self) -> str:
        """Name of the app: of its consumer group, and of its changelog topics' beginning."""
        return f"walle-baseline-{self.name}"


def baseline_of(loaded: LoadedPipeline[Any]) -> BaselinePipeline:
    """Return what the baseline needs of a pipeline.

    Raises:
        SpecFileError: It is no pipeline that the baseline can do.
    """
    name, spec = loaded.pipeline.metadata.name, loaded.pipeline.spec
    events, features = loaded.source, loaded.tunnel
    if not isinstance(events, Connection) or not isinstance(features, Connection):
        raise SpecFileError(
            f"pipeline {name!r}: the baseline reads raw events from a broker, and writes features "
            "to one: make spec.source.connector and spec.tunnel.connector kafka"
        )
    tasks = [each for each in loaded.tasks if isinstance(each, Task) and _is_on_exit(each)]
    if len(tasks) != 1:
        raise SpecFileError(
            f"pipeline {name!r}: the baseline does one task, triggered by page_exit "
            f"alone, and found {len(tasks)}"
        )
    task = tasks[0].spec
    return BaselinePipeline(
        name=name,
        features=features,
        features_topic=getattr(features, "topic", ""),
        events=events,
        events_topic=getattr(events, "topic", ""),
        task=tasks[0],
        policy=VisitPolicy(
            page_timeout_ms=spec.sequence.page_timeout_ms,
            page_max_events=spec.sequence.page_max_events,
            pages=None if task.pages is None else frozenset(task.pages),
            fields=None if task.fields is None else frozenset(task.fields),
        ),
    )


def _is_on_exit(task: Task) -> bool:
    return [list(trigger.sequence) for trigger in task.spec.triggers] == [["page_exit"]]


class Profile(msgspec.Struct, array_like=True):
    """Data of a device apart from its open pages; starts empty."""

    last_number: int = 0
    state: dict[str, Any] = {}


class Sessions:
    """Turns raw events into records of features; pure but for the tables."""

    def __init__(self, pipeline: BaselinePipeline, visits: Any, profiles: Any) -> None:
        """Load the task's script; both tables are by device.

        Raises:
            ScriptError: The script cannot be loaded.
        """
        self._policy = pipeline.policy
        self._task = CloudTask(pipeline.task)
        self._visits = visits
        self._profiles = profiles
        self._incarnation = blake2b(pipeline.group.encode(), digest_size=8).hexdigest()
        self._decode_event = msgspec.json.Decoder(RawEvent).decode
        self._decode_visits = msgspec.msgpack.Decoder(DeviceVisits).decode
        self._decode_profile = msgspec.msgpack.Decoder(Profile).decode
        self._encode = msgspec.msgpack.Encoder().encode

    def accept(
        self, partition: int, key: bytes | None, value: bytes | None, time_ms: int
    ) -> list[tuple[bytes, bytes, list[tuple[str, bytes]]]]:
        """Take a raw event, JSON by device; return records of the features that it made.

        ``time_ms`` is the record's.

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


def add_sessions(app: Any, pipeline: BaselinePipeline, visits: Any, profiles: Any) -> None:
    """Add the agent that makes features; both tables are by device.

    Raises:
        ScriptError: The task's script cannot be loaded.
    """
    raw = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw"}
    raw |= {"value_serializer": "raw", "allow_empty": True}
    events = app.topic(pipeline.events_topic, **raw)
    features = app.topic(pipeline.features_topic, **raw)
    sessions = Sessions(pipeline, visits, profiles)

    @app.agent(events, name="sessions")  # type: ignore[untyped-decorator]
    async def run(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            try:
                records = sessions.accept(
                    message.partition, message.key, message.value, int(message.timestamp * 1000)
                )
            except EnvelopeError as error:
                place = f"{message.topic}[{message.partition}]@{message.offset}"
                _log.warning("%s refused: %s", place, error)
                continue
            for key, value, headers in records:
                await features.send(
                    key=key, value=value, headers=headers, partition=message.partition
                )
