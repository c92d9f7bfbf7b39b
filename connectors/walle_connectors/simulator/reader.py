"""Reads a simulated shop, partition by partition, from any offset on."""

from collections.abc import Mapping, Sequence

import msgspec

from walle_connectors.simulator.pace import Pace
from walle_connectors.simulator.timeline import Line, Timeline
from walle_stream.errors import SourceError
from walle_stream.events import Event
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts, Unread

_EVENT_BYTES = 600
_WINDOWS_KEPT = 4


class _Position(msgspec.Struct, forbid_unknown_fields=True):
    v: int
    window: int
    line: int
    """Of the partition's lines in the window, the next one."""
    windows: int
    """How many the shop had when the end was reached; 0 before."""


_encode = msgspec.json.Encoder().encode
_decode_position = msgspec.json.Decoder(_Position).decode
_decode_event = msgspec.json.Decoder(Event).decode


class SimulatorReader:
    """A shop that was opened at its partitions' offsets. One thread."""

    def __init__(
        self,
        timeline: Timeline,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None,
        pace: Pace | None = None,
    ) -> None:
        """Begin.

        Args:
            timeline: The shop.
            offsets: By partition.
            partition_count: Number of partitions.
            batch_events: Most events in a batch.
            limit: Most events to read.
            pace: How fast; None for as fast as they are taken.

        Raises:
            SourceError: An offset is not of this source.
        """
        self.batch_events = batch_events
        """Most events in a batch; may be changed between reads."""
        self.keeps_raw = False
        """Whether batches carry their raw rows."""
        self._timeline = timeline
        self._left = limit
        self._pace = pace
        self._partition_count = partition_count
        self._windows: dict[int, list[list[Line]]] = {}
        self._positions = [
            _position(partition, offsets.get(partition)) for partition in range(partition_count)
        ]

    def read(self) -> Sequence[SourceBatch]:
        """Return the next batch of the partition that is furthest behind."""
        windows = self._timeline.windows
        behind = [
            (position.window, position.line, partition)
            for partition, position in enumerate(self._positions)
            if position.windows != windows
        ]
        if not behind or self._left == 0:
            return ()
        most = self.batch_events if self._pace is None else self._pace.allow(self.batch_events)
        if not most:
            return ()
        partition = min(behind)[2]
        batch = self._batch(partition, self._positions[partition], most)
        if self._pace is not None:
            self._pace.take(len(batch.events))
        return (batch,)

    def drain(self) -> Sequence[SourceBatch]:
        """Return nothing: no event is held back."""
        return ()

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit was reached."""
        windows = self._timeline.windows
        return self._left == 0 or all(each.windows == windows for each in self._positions)

    @property
    def progress(self) -> float:
        """Share of the windows that was read, 0-1."""
        done = sum(position.window for position in self._positions)
        return done / (self._timeline.windows * self._partition_count)

    @property
    def unread(self) -> Unread:
        """It knows windows, not how many events they have."""
        return Unread()

    def close(self) -> None:
        """Forget the windows."""
        self._windows.clear()

    def _batch(self, partition: int, at: _Position, most: int) -> SourceBatch:
        # of one window, so that a batch's lines are made together
        last = self._timeline.windows
        lines: Sequence[Line] = ()
        if at.window < last:
            lines = self._lines(at.window)[partition][at.line :]
        count = min(len(lines), most, len(lines) if self._left is None else self._left)
        taken = lines[:count]
        if self._left is not None:
            self._left -= count
        if count == len(lines):
            at.window, at.line = min(at.window + 1, last), 0
        else:
            at.line += count
        is_end = at.window == last
        at.windows = last if is_end else 0
        raw_bytes = sum(len(line.data) + 1 for line in taken)
        raw = (
            b"\n".join([*(line.data for line in taken), b""]) if self.keeps_raw and count else None
        )
        return SourceBatch(
            partition=partition,
            events=EventBatch([_decode_event(line.data) for line in taken]),
            offset=_encode(at),
            counts=SourceCounts(source_rows=count, accepted_rows=count, raw_bytes=raw_bytes),
            dead_letters=[],
            is_end=is_end,
            size_bytes=count * _EVENT_BYTES + raw_bytes,
            raw=raw,
        )

    def _lines(self, window: int) -> list[list[Line]]:
        found = self._windows.get(window)
        if found is None:
            while len(self._windows) >= _WINDOWS_KEPT:
                del self._windows[min(self._windows)]
            found = self._timeline.lines_by_partition(window, self._partition_count)
            self._windows[window] = found
        return found


def _position(partition: int, offset: bytes | None) -> _Position:
    if offset is None:
        return _Position(1, 0, 0, 0)
    try:
        position = _decode_position(offset)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SourceError(
            f"the offset of partition {partition} is not one of a simulated shop ({error}): give "
            "the source that the data directory was made from, or a new --data-dir"
        ) from error
    if position.v != 1 or min(position.window, position.line, position.windows) < 0:
        raise SourceError(
            f"the offset of partition {partition} has layout {position.v}, this version reads 1: "
            "use the version of walle_stream that wrote it"
        )
    return position
