"""Makes batches of a partition's records: decoded in bulk, one by one where that fails.

Key is the device, value one event as JSON: the names of ``walle_stream.events.Event``.
``device_id`` may be left out (the key wins, another one is a dead letter), and
``ingest_time_ms`` is the record's time, whatever stands there.
"""

from itertools import starmap
from typing import Any, Final

import msgspec

from walle_connectors.dead_letters import record_dead_letter
from walle_connectors.event_text import BAD_TIME, DECODE_ERRORS, decode_problem
from walle_connectors.kafka.source.fetching import Record, Records
from walle_stream.events import Event, Kind
from walle_stream.ports import (
    DeadLetter,
    DeadLetterRoute,
    EventBatch,
    Origins,
    SourceBatch,
    SourceCounts,
)
from walle_stream.types import TIME_MAX_MS, device_id_problem

_DEVICES_CACHED: Final = 262_144
_ROW_BYTES: Final = 500  # an event or a dead letter, beside its texts


class EventValue(msgspec.Struct, gc=False):
    """An event whose device and ingest time stand in the record."""

    id: str
    kind: Kind
    page_id: str
    page_instance: str
    event_time_ms: int
    device_id: str = ""
    contents: dict[str, Any] = {}
    uid: str = ""


type _Problem = tuple[DeadLetterRoute, str, str]

_decode_event = msgspec.json.Decoder(Event).decode
_decode_value = msgspec.json.Decoder(EventValue).decode


class BatchMaker:
    """Makes a topic's batches. One thread; pure but for what it remembers of devices."""

    def __init__(self, topic: str, max_record_bytes: int) -> None:
        """Begin."""
        self._topic = topic
        self._max_bytes = max_record_bytes
        self._devices: dict[bytes | None, str] = {}

    def make(
        self,
        partition: int,
        records: Records,
        offset: bytes,
        *,
        keeps_raw: bool = False,
        arrived_ms: float | None = None,
    ) -> SourceBatch:
        """Make a batch of all of some records.

        Args:
            partition: Whose they are.
            records: In its order.
            offset: Behind the last of them.
            keeps_raw: Whether the batch carries its values.
            arrived_ms: When they arrived.
        """
        letters: list[DeadLetter] = []
        events, offsets = self._decode_all(records), records.offsets
        if events is None:
            events, offsets = [], list[int]()
            for record in starmap(Record, zip(*records, strict=True)):
                found = self._decode(record)
                if isinstance(found, Event):
                    events.append(found)
                    offsets.append(record.offset)
                else:
                    letters.append(self._letter(partition, record, found))
        count = len(records.values)
        values = [value or b"" for value in records.values]
        raw_bytes = sum(map(len, values)) + count
        return SourceBatch(
            partition=partition,
            events=EventBatch(events),
            offset=offset,
            counts=SourceCounts(
                source_rows=count,
                accepted_rows=len(events),
                dead_letter_rows=len(letters),
                raw_bytes=raw_bytes,
            ),
            dead_letters=letters,
            size_bytes=count * _ROW_BYTES + raw_bytes,
            raw=b"\n".join([*values, b""]) if keeps_raw and values else None,
            arrived_ms=arrived_ms,
            origins=Origins(f"{self._topic}[{partition}]", offsets),
        )

    def _decode_all(self, records: Records) -> list[Event] | None:
        # nothing may have to be decided record by record
        events = self._decode_values(records)
        if not events:
            return None
        devices = self._devices
        for event, key, time_ms in zip(events, records.keys, records.timestamps, strict=True):
            device_id = devices.get(key) or self._device(key)
            if event.device_id != device_id:
                return None
            event.device_id = device_id  # one text for all events of a device
            event.ingest_time_ms = time_ms
        return events

    def _decode_values(self, records: Records) -> list[Event]:
        """Decode the values one after another; returns none where some may be wrong."""
        times, values = records.timestamps, records.values
        if not values or None in values or min(times) < 0 or max(times) > TIME_MAX_MS:
            return []
        if max(map(len, values)) > self._max_bytes:  # type: ignore[arg-type]
            return []
        try:
            # as lines of one text they cost a fifth more (2026-11-22): it has to be made
            return list(map(_decode_event, values))  # type: ignore[arg-type]
        except DECODE_ERRORS:
            return []

    def _device(self, key: bytes | None) -> str:
        """Return the device of a key; empty where it is none."""
        try:
            device_id = (key or b"").decode()
        except UnicodeDecodeError:
            return ""
        if device_id_problem(device_id):
            return ""
        if len(self._devices) >= _DEVICES_CACHED:
            self._devices.clear()
        self._devices[key] = device_id
        return device_id

    def _decode(self, record: Record) -> Event | _Problem:
        problem = self._problem(record)
        if problem is not None:
            return problem
        try:
            value = _decode_value(record.value or b"")
        except DECODE_ERRORS as error:
            return decode_problem(error)
        device_id = self._device(record.key)
        if value.device_id not in {"", device_id}:
            reason = f"device {value.device_id[:64]!r} in the value, {device_id[:64]!r} in the key"
            return "invalid", reason, ""
        if not 0 <= value.event_time_ms <= TIME_MAX_MS:
            return "invalid", BAD_TIME, ""
        return Event(
            device_id=device_id,
            id=value.id,
            kind=value.kind,
            page_id=value.page_id,
            page_instance=value.page_instance,
            event_time_ms=value.event_time_ms,
            ingest_time_ms=record.timestamp,
            contents=value.contents,
            uid=value.uid,
        )

    def _problem(self, record: Record) -> _Problem | None:
        if record.value is None:
            return "decode", "is a tombstone: no value", ""
        size = len(record.value)
        if size > self._max_bytes:
            return "oversized", f"{size} bytes, at most {self._max_bytes} are allowed", ""
        if record.key is None:
            return "invalid", "has no key: the device is not known", ""
        try:
            problem = device_id_problem(record.key.decode())
        except UnicodeDecodeError:
            problem = "the key is no UTF-8"
        if problem is None and not 0 <= record.timestamp <= TIME_MAX_MS:
            problem = f"the record has no time, or a wrong one: {record.timestamp}"
        return ("invalid", problem, "") if problem else None

    def _letter(self, partition: int, record: Record, problem: _Problem) -> DeadLetter:
        route, reason, error = problem
        return record_dead_letter(
            record.value or b"",
            route=route,
            reason=reason,
            origin=f"{self._topic}[{partition}]@{record.offset}",
            device_id=self._device(record.key),
            error=error,
        )
