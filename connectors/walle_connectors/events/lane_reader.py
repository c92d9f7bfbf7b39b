"""What readers of both formats of events have in common: batches by partition, and ends.

A reader goes through the file once for all partitions. It begins at the place furthest
behind, passes over what a partition has had already, and hands out what it has collected
for all of them when that is as much as a batch may have. After ``FLUSH_BYTES`` it does so
also for a partition that got nothing, so that none falls behind by more.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, cast

from walle_connectors.events.lanes import Lane
from walle_connectors.events.offsets import Position, decode_positions, encode_position
from walle_connectors.file_stream import FileStream
from walle_stream.faults import crash_point
from walle_stream.ports import SourceBatch, Unread
from walle_stream.types import partition_of

FLUSH_BYTES: Final = 8 * 2**20
"""Partly filled batches are handed out after this many bytes."""

_DEVICES_CACHED: Final = 262_144


class LaneReader[P: Position](ABC):
    """A file that was opened at its partitions' offsets. One thread."""

    _beginning: ClassVar[Position]
    """Where a partition begins that has no offset."""

    def __init__(
        self,
        *,
        stream: FileStream,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None,
        max_record_bytes: int,
    ) -> None:
        """Begin.

        Args:
            stream: The file, at its beginning; taken.
            offsets: By partition.
            partition_count: Number of partitions.
            batch_events: Most events in the batches of all partitions together.
            limit: Most lines or records to read beyond the offsets.
            max_record_bytes: Longest line, or payload of a record.

        Raises:
            SourceError: An offset is not of such a file.
            SourceFormatError: The file's head is damaged or of another version.
            SourceChangedError: The file differs from what was read before.
        """
        self.batch_events = batch_events
        """Most events in what is handed out at once; may be changed between reads."""
        self.keeps_raw = False
        """Whether batches carry their raw rows."""
        positions = decode_positions(offsets, partition_count, cast("P", self._beginning))
        self._lanes = [Lane(number, position) for number, position in enumerate(positions)]
        self._homes: dict[str, Lane[P]] = {}
        self._stream, self._name, self._max_bytes = stream, stream.name, max_record_bytes
        self._last_row = None if limit is None else limit + max(each.line for each in positions)
        self._at = self._row = 0
        self._ready: list[SourceBatch] = []
        self._count = 0  # events collected
        self._is_at_end = self._is_done = False
        self._start(sorted(positions, key=lambda position: position.place))
        self._flush_at = self._at + FLUSH_BYTES

    def read(self) -> Sequence[SourceBatch]:
        """Read on until a batch is full, or for a bounded number of bytes.

        Raises:
            SourceError: The file cannot be read on.
            SourceChangedError: It differs from what was read before.
        """
        while not self._ready and not self._is_done:
            if self._last_row is not None and self._row >= self._last_row:
                self._flush()
                self._is_done = True
            elif not self._go_on():
                self._end()
            if self._at >= self._flush_at:
                self._flush()
        return self._hand_out()

    def drain(self) -> Sequence[SourceBatch]:
        """Return what was read but not yet returned; nothing is held back."""
        self._flush()
        self._is_done = True
        return self._hand_out()

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit was reached and all was returned."""
        return self._is_done and not self._ready

    @property
    def progress(self) -> float:
        """Share of the file that was read, 0-1."""
        return self._stream.progress

    @property
    def unread(self) -> Unread:
        """Bytes of the file that were not read yet."""
        return self._stream.unread

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._stream.close()

    @abstractmethod
    def _start(self, positions: Sequence[P]) -> None:
        """Check that the file is the one of all positions, then go to the first."""

    @abstractmethod
    def _go_on(self) -> bool:
        """Read something, or take what was read; False at the file's end."""

    @abstractmethod
    def _position(self, *, is_end: bool = False) -> P:
        """Return where the reader stands."""

    def _remember(self, device_id: str) -> Lane[P]:
        if len(self._homes) >= _DEVICES_CACHED:
            self._homes.clear()
        lane = self._homes[device_id] = self._lanes[partition_of(device_id, len(self._lanes))]
        return lane

    def _cut(self) -> None:
        # what was collected, of the partitions that got something
        position = self._position()
        offset = encode_position(position)
        self._ready += [lane.cut(position, offset) for lane in self._lanes if lane.rows]
        self._count = 0

    def _flush(self) -> None:
        self._flush_at = self._at + FLUSH_BYTES
        self._cut()
        here = self._position()
        offset = encode_position(here)
        for lane in self._lanes:
            # also one that got nothing: a restart begins at the place furthest behind
            if lane.done.place < here.place:
                self._ready.append(lane.cut(here, offset))

    def _end(self) -> None:
        self._is_done = True
        end = self._position(is_end=True)
        offset = encode_position(end)
        for lane in self._lanes:
            # nothing came since the partition was told of this end
            if not (lane.done.is_end and lane.done.at >= self._at):
                self._ready.append(lane.cut(end, offset))

    def _hand_out(self) -> list[SourceBatch]:
        batches, self._ready = self._ready, []
        if batches:
            crash_point("read.batch")
        return batches
