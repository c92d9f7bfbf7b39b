"""Events of one partition on their way from a source to the core.

The modules between them see no event: only the number of events, and bytes.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple

import msgspec

from walle_stream.events import Event

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[Event]).decode


class RefusedRow(NamedTuple):
    """A refused event, with the fields for its dead letter."""

    event_index: int
    """Index in the batch as the source made it."""
    route: Literal["late", "invalid"]
    reason: str
    device_id: str
    ingest_time_ms: int
    record: bytes
    """The event as JSON."""


class EventBatch:
    """Events in their partition's order, for one thread at a time."""

    __slots__ = ("_count", "_encoded", "_events", "kept", "refused")

    def __init__(self, events: list[Event], encoded: bytes | None = None) -> None:
        """Take over events, and their journal bytes if they exist already."""
        self._events: list[Event] | None = events
        self._count = len(events)
        self._encoded = encoded
        self.kept: Sequence[int] = range(self._count)
        """Index in the source's batch of each event that ``events`` returns."""
        self.refused: list[RefusedRow] = []
        """Events that cannot be encoded; complete after ``encoded``."""

    def __len__(self) -> int:
        """Return the number of events from the source."""
        return self._count

    def __iter__(self) -> Iterator[Event]:
        """Iterate over the events, for test kits that compare sources."""
        return iter(_decode(self._encoded or b"") if self._events is None else self._events)

    @property
    def encoded(self) -> bytes:
        """The events in the journal's encoding, without the refused ones; made once."""
        if self._encoded is None:
            events = self._events or []
            try:
                self._encoded = _encode(events)
            except OverflowError:
                # numbers of JSON have no bounds, but stored numbers do
                self.refused = refused = list(_without_encoding(events))
                indices = {row.event_index for row in refused}
                self.kept = [index for index in self.kept if index not in indices]
                self._events = [events[index] for index in self.kept]
                self._encoded = _encode(self._events)
        return self._encoded

    def events(self) -> list[Event]:
        """Return the events without the refused ones; for the core only."""
        encoded = self.encoded
        return _decode(encoded) if self._events is None else self._events

    def let_go(self) -> None:
        """Drop the events and keep only bytes.

        Until their commit, events would cost memory, and leave the processor's caches.
        """
        if self._encoded is not None:
            self._events = None

    def index_of(self, device_id: str, event_time_ms: int) -> int | None:
        """Return the source's index of the event that may have woken a run.

        This is the device's last event of that time, else its last event, else the batch's last
        event, for a timeout. The result is None for a batch without events.
        """
        events = self.events()
        own = [index for index, event in enumerate(events) if event.device_id == device_id]
        exact = [index for index in own if events[index].event_time_ms == event_time_ms]
        chosen = exact or own or range(len(events))
        return self.kept[chosen[-1]] if chosen else None

    def heads(self, count: int) -> list[tuple[str, str, int]]:
        """Return (id, page, event time in milliseconds) of up to ``count`` first events."""
        return [(event.id, event.page_id, event.event_time_ms) for event in islice(self, count)]


def _without_encoding(events: Sequence[Event]) -> Iterator[RefusedRow]:
    for index, event in enumerate(events):
        try:
            _encode(event.contents)
        except OverflowError:
            yield RefusedRow(
                index,
                "invalid",
                "a number in its contents is beyond 64 bits",
                event.device_id,
                event.ingest_time_ms,
                json.dumps(msgspec.structs.asdict(event), ensure_ascii=False).encode(),
            )
