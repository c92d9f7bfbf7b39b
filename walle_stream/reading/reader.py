"""The reader of every source: batches by partition, the limit, ends and failures.

A reader reads until it has a full batch, counted over all partitions, or reaches an end, a limit
or a failure. After ``FLUSH_BYTES`` the next full batch comes with batches of all partitions, even
of empty ones, so that no offset falls behind. Without a full batch they come after twice as many
bytes.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.faults import crash_point
from walle_stream.ports import SourceBatch, Unread
from walle_stream.reading.lane import Lane
from walle_stream.reading.offsets import Position, decode_positions

if TYPE_CHECKING:
    from walle_stream.reading.source import Opening

FLUSH_BYTES: Final = 4 * 2**20
"""Bytes after which partly filled batches are returned; at most twice as many pass."""

_DEVICES_CACHED: Final = 262_144


class LaneReader[P: Position](ABC):
    """An open source at its partitions' offsets (``ports.SourceReader``), for one thread.

    A subclass uses ``_lanes``, ``_number_of``, ``_home``, ``_row`` (rows read, which the limit
    bounds by ``_last_row``), ``_count`` (events collected), ``_passed`` (bytes since the last
    flush), ``_cut``, ``_tell_end`` and ``_finish``.
    """

    lane_type: ClassVar[type[Lane[Any]]] = Lane
    """Class of the lanes."""

    def __init__(self, opening: "Opening", beginning: P) -> None:
        """Begin; a partition without an offset is at ``beginning``.

        Raises:
            SourceError: An offset is of another kind of source.
        """
        self.batch_events = opening.batch_events
        self.keeps_raw = self.is_urgent = False
        positions = decode_positions(opening.offsets, opening.numbers, beginning)
        self._lanes: dict[int, Lane[P]] = {
            number: self.lane_type(number, position) for number, position in positions.items()
        }
        self._homes: dict[str, Lane[P]] = {}
        self._placing = opening.placing
        self._wanted = None if opening.wanted is None else frozenset(opening.wanted)
        self._row = self._count = self._passed = 0
        limit = opening.limit
        rows = max((position.rows for position in positions.values()), default=0)
        self._last_row = sys.maxsize if limit is None else rows + limit
        self._ready: list[SourceBatch] = []
        self._refusal: SourceError | None = None
        self._is_done = False

    # The port

    def read(self) -> Sequence[SourceBatch]:
        """Read until a batch is full, a number of bytes was read, or no input is available.

        Raises:
            SourceError: The source cannot be read further; all rows before were returned.
            SourceChangedError: The source differs from what was read before.
        """
        if self._refusal is not None:
            raise self._refusal
        try:
            self._advance()
        except SourceError as error:
            self._refusal = error
            if isinstance(error, SourceChangedError):
                self._ready.clear()  # the source's new rows are not the rows read before
            else:
                self._flush()
            if not self._ready:
                raise
        return self._hand_out()

    def drain(self) -> Sequence[SourceBatch]:
        """Return batches that were read but not yet returned; waiting events stay."""
        if self._refusal is None and not self._is_done:
            self._flush()
        self._is_done = True
        return self._hand_out()

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit was reached and all batches were returned."""
        return self._is_done and not self._ready

    @property
    def progress(self) -> float:
        """Share of the source that was read, 0-1; below 0 when unknown."""
        return -1.0

    @property
    def unread(self) -> Unread:
        """Unread input, as far as the source knows; for any thread."""
        return Unread()

    def close(self) -> None:  # noqa: B027 - most readers have nothing open
        """Release files and connections; may be called twice."""

    # Methods of a connector

    @abstractmethod
    def _go_on(self) -> bool:
        """Read more, or take rows that were read; return False if nothing is available now.

        Raises:
            SourceError: The source cannot be read further.
        """

    @abstractmethod
    def _position(self, lane: Lane[P], *, is_end: bool = False) -> P:
        """Return a partition's position after the rows that its lane has collected."""

    # Methods for a connector

    def _number_of(self, device_id: str) -> int:
        """Return the partition of a device; only for a source that was opened with all."""
        return self._placing(device_id, len(self._lanes))

    def _home(self, device_id: str) -> Lane[P]:
        """Return the lane of a device, and remember it in ``_homes``."""
        if len(self._homes) >= _DEVICES_CACHED:
            self._homes.clear()
        lane = self._homes[device_id] = self._lanes[self._number_of(device_id)]
        return lane

    def _cut(self) -> None:
        """Make batches of collected rows; if a flush is due, make them for all partitions."""
        # separate partly filled batches would cost a commit each
        if self._is_due:
            self._flush()
        else:
            self._cut_collected()

    def _cut_collected(self) -> None:
        self._count = 0
        self._ready += [
            lane.cut(self._position(lane)) for lane in self._lanes.values() if not lane.is_empty
        ]

    def _tell_end(self) -> None:
        """Make the last batches before an end, for partitions that were not told of it."""
        self._count = 0
        for lane in self._lanes.values():
            end, done = self._position(lane, is_end=True), lane.done
            if done.place < end.place or (done.place == end.place and not done.is_end):
                self._ready.append(lane.cut(end))

    def _finish(self) -> None:
        """Stop reading at an end or the limit."""
        self._is_done = True

    def _behind_ms(self, newest_ms: int) -> int:
        """Return the reader's lag behind a time, -1 if unknown; for any thread."""
        read_ms = max((lane.time_ms for lane in list(self._lanes.values())), default=-1)
        return max(newest_ms - read_ms, 0) if newest_ms >= 0 and read_ms >= 0 else -1

    # Reading

    def _advance(self) -> None:
        while not self._ready and not self._is_done:
            if self._row >= self._last_row:
                self._flush()
                self._finish()
            elif not self._go_on():
                self._flush()
                break
            elif self._passed >= 2 * FLUSH_BYTES:
                self._flush()

    @property
    def _is_due(self) -> bool:
        """Whether the next batches must include all partitions."""
        return self._passed >= FLUSH_BYTES

    def _flush(self) -> None:
        self._passed = 0
        self._cut_collected()
        for lane in self._lanes.values():
            # includes empty lanes, because a restart begins at the earliest position
            here = self._position(lane)
            if lane.done.place < here.place:
                self._ready.append(lane.cut(here))

    def _hand_out(self) -> list[SourceBatch]:
        batches, self._ready = self._ready, []
        if self._wanted is not None:  # a source in one piece also returns other partitions
            batches = [batch for batch in batches if batch.partition in self._wanted]
        if batches:
            crash_point("read.batch")
        return batches
