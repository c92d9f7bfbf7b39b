"""Events of one partition on their way from a source to the core.

Whoever hands a batch on sees no event: only how many there are, and bytes.
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
    """An event that goes no further, as its dead letter needs it."""

    event_index: int
    """In the batch, as the source made it."""
    route: Literal["late", "invalid"]
    reason: str
    device_id: str
    ingest_time_ms: int
    record: bytes
    """The event as JSON."""


class EventBatch:
    """Events in their partition's order. One thread at a time."""

    __slots__ = ("_count", "_encoded", "_events", "kept", "refused")

    def __init__(self, events: list[Event], encoded: bytes | None = None) -> None:
        """Take over events, and what they are in the journal already."""
        self._events: list[Event] | None = events
        self._count = len(events)
        self._encoded = encoded
        self.kept: Sequence[int] = range(self._count)
        """Of each event that ``events`` returns, its index as the source made the batch."""
        self.refused: list[RefusedRow] = []
        """Those that cannot be encoded; known behind ``encoded``."""

    def __len__(self) -> int:
        """Return how many events the source gave."""
        return self._count

    def __iter__(self) -> Iterator[Event]:
        """Iterate over the events, for kits that compare what sources give."""
        return iter(_decode(self._encoded or b"") if self._events is None else self._events)

    @property
    def encoded(self) -> bytes:
        """The events as the journal has them, without the refused ones; made once."""
        if self._encoded is None:
            events = self._events or []
            try:
                self._encoded = _encode(events)
            except OverflowError:
                # JSON knows no bounds, what is stored does
                self.refused = refused = list(_without_encoding(events))
                indices = {row.event_index for row in refused}
                self.kept = [index for index in self.kept if index not in indices]
                self._events = [events[index] for index in self.kept]
                self._encoded = _encode(self._events)
        return self._encoded

    def events(self) -> list[Event]:
        """Return the events without the refused ones; for the core alone."""
        encoded = self.encoded
        return _decode(encoded) if self._events is None else self._events

    def let_go(self) -> None:
        """Keep nothing but bytes: events would cost memory until their commit, and time.

        They would have left the processor's caches by then.
        """
        if self._encoded is not None:
            self._events = None

    def index_of(self, device_id: str, event_time_ms: int) -> int | None:
        """Return which event of the batch may have woken a run, as the source counts.

        The device's last event of that time, else its last, else the last of all, for a time-out.
        None where there is none.
        """
        events = self.events()
        own = [index for index, event in enumerate(events) if event.device_id == device_id]
        exact = [index for index in own if events[index].event_time_ms == event_time_ms]
        chosen = exact or own or range(len(events))
        return self.kept[chosen[-1]] if chosen else None

    def heads(self, count: int) -> list[tuple[str, str, int]]:
        """Return (id, page, event time in milliseconds) of the first events, ``count`` at most."""
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
