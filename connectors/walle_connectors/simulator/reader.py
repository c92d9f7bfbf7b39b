"""Reads a simulated shop, partition by partition, from any offset on."""

from collections.abc import Mapping
from functools import lru_cache, partial
from operator import attrgetter
from typing import ClassVar, Final, override

import msgspec

from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.pace import Pace
from walle_connectors.simulator.timeline import START_MS, WINDOW_MS, Timeline
from walle_stream.events import Event
from walle_stream.ports import Unread
from walle_stream.reading import Lane, LaneReader, LaneSource, Opening, Position
from walle_stream.reading.dead_letters import text_digest
from walle_stream.reading.offsets import Count

_WINDOWS_KEPT: Final = 4

_decode_event = msgspec.json.Decoder(Event).decode


class ShopPosition(Position, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Position of a partition; at an end, ``window`` is the shop's number of windows."""

    what: ClassVar[str] = "a simulated shop"
    order = ("window", "line")

    window: Count = 0
    line: Count = 0
    """Index of the next line among the partition's lines in the window."""


class SimulatorReader(LaneReader[ShopPosition]):
    """A shop opened at its partitions' offsets. One thread."""

    def __init__(self, timeline: Timeline, opening: Opening, pace: Pace | None = None) -> None:
        """Start reading; without a pace, events come as fast as they are read.

        Raises:
            SourceError: An offset is not of this source.
        """
        super().__init__(opening, ShopPosition())
        self._timeline, self._pace = timeline, pace
        # windows that partitions read at about the same time are made once
        self._lines = lru_cache(_WINDOWS_KEPT)(
            partial(
                timeline.lines_by_partition,
                partition_count=len(self._lanes),
                placing=opening.placing,
            )
        )

    @override
    def _go_on(self) -> bool:
        """Read some lines, of one window, of the partition that is furthest behind."""
        last = self._timeline.windows
        lanes = [lane for lane in self._lanes.values() if not _has_end(lane.done, last)]
        if not lanes:
            self._finish()
            return True
        most = self.batch_events if self._pace is None else self._pace.allow(self.batch_events)
        if most:
            self._take(min(lanes, key=attrgetter("done.place")), most)
        return bool(most)

    def _take(self, lane: Lane[ShopPosition], most: int) -> None:
        # only one window, so that the lines of a batch are made together
        window, line, last = lane.done.window, lane.done.line, self._timeline.windows
        lines = self._lines(window)[lane.number][line:] if window < last else []
        taken = lines[: min(most, self._last_row - self._row)]
        self._row += len(taken)
        if self._pace is not None:
            self._pace.take(len(taken))
        line += len(taken)
        if len(taken) == len(lines):
            window, line = min(window + 1, last), 0
        lane.events = [_decode_event(each.data) for each in taken]
        lane.raw_bytes = sum(len(each.data) + 1 for each in taken)
        if self.keeps_raw:
            lane.raw = [each.data + b"\n" for each in taken]
        position = ShopPosition(window=window, line=line, is_end=window == last)
        self._ready.append(lane.cut(position))

    @override
    def _position(self, lane: Lane[ShopPosition], *, is_end: bool = False) -> ShopPosition:
        return lane.done  # this reader collects no events

    @override
    @property
    def progress(self) -> float:
        """Share of the windows that were read, 0-1."""
        done = sum(lane.done.window for lane in self._lanes.values())
        return done / (self._timeline.windows * len(self._lanes))

    @override
    @property
    def unread(self) -> Unread:
        """Windows and their times are known, the number of their events is not."""
        windows, done = self._timeline.windows, [x.done.window for x in self._lanes.values()]
        if min(done) == windows:
            return Unread(0, 0, 0)
        return Unread(time_ms=self._behind_ms(START_MS + windows * WINDOW_MS))

    @override
    def close(self) -> None:
        """Drop the cached windows."""
        self._lines.cache_clear()


def _has_end(done: ShopPosition, windows: int) -> bool:
    return done.is_end and done.window == windows


class SimulatorSource(LaneSource):
    """Events of a simulated shop."""

    name = "the simulated shop"

    def __init__(self, model: SimulatorModel) -> None:
        """Keep the definition."""
        self._model = model

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """Digest of the keys that determine the events."""
        text = self._model.model_dump_json(exclude={"connector", "sessions", "rate"})
        return {"simulator": text_digest(text.encode())}

    @override
    def difference(self, stored: Mapping[str, str | int]) -> str:
        """Return the difference; a shop with more sessions is the same source."""
        return super().difference(stored) and "keys of spec.source differ (sessions may grow)"

    @override
    def _reader(self, opening: Opening) -> SimulatorReader:
        pace = None if self._model.rate is None else Pace(self._model.rate)
        return SimulatorReader(Timeline(self._model), opening, pace)
