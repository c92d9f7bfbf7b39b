"""Reader of parts, which takes a block of each wanted partition in turn."""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final, override

import msgspec

from walle_stream.errors import SourceError, StoreError, StoreUnreachableError
from walle_stream.ports import ObjectStore, Unread
from walle_stream.reading.dead_letters import DECODE_ERRORS
from walle_stream.reading.lane import Lane
from walle_stream.reading.offsets import Count, Position
from walle_stream.reading.parts.layout import Frame, Manifest, part_name
from walle_stream.reading.reader import LaneReader
from walle_stream.reading.source import Opening

_BLOCKS_BYTES: Final = 64 * 2**20
_BLOCK_MIN_BYTES: Final = 2**16
_BLOCK_MAX_BYTES: Final = 2**20  # takes an object store about ten milliseconds

_log = logging.getLogger(__name__)


class PartPosition(Position, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in a part."""

    what = "a source in parts"
    order = ("at", "step")

    at: Count = 0
    """Offset of the next frame, or of a frame that was returned in part."""
    step: Count = 0
    """Returned steps of the frame; a step has at most one event and one row."""
    taken: Count = 0
    """Rows up to here."""
    digest: str = ""
    """Digest of the cut to which the position belongs."""


class PartLane(Lane[PartPosition]):
    """A partition with its current frame."""

    __slots__ = ("block", "block_at", "end", "frame")
    _uncounted = 0

    def __init__(self, number: int, done: PartPosition) -> None:
        """Begin at a position, without a frame."""
        super().__init__(number, done)
        self.frame: Frame | None = None
        self.end = done.at
        """Offset of the frame's end; without a frame, offset of the next one."""
        self.block, self.block_at = b"", done.at
        """Bytes that were read, and their offset."""


class PartReader(LaneReader[PartPosition]):
    """Open parts at their partitions' offsets, for one thread.

    Parts share a limit, because their rows have no common order.
    """

    lane_type = PartLane
    _lanes: dict[int, PartLane]  # type: ignore[assignment] # of that type

    def __init__(self, objects: ObjectStore, manifest: Manifest, opening: Opening) -> None:
        """Begin without opening a part.

        Raises:
            SourceError: An offset is not of a source in parts, or of other parts.
        """
        super().__init__(opening._replace(limit=None), PartPosition())
        self._objects, self._digest, self._parts = objects, manifest.digest, manifest.parts
        for lane in self._lanes.values():
            if lane.done.digest not in {"", self._digest}:
                raise SourceError(
                    f"{objects.place} was cut from another file, or in another way, than the parts "
                    f"that partition {lane.number} has read: give a new data directory and, with "
                    "spec.state.snapshots, another place for snapshots"
                )
        rows = [part.rows for part in manifest.parts]
        taken = [lane.done.taken for lane in self._lanes.values()]
        is_limited = opening.limit is not None and opening.limit <= sum(rows) - sum(taken)
        self._stops = _stops(taken, rows, opening.limit or 0) if is_limited else None
        self._lanes = {number: self._lanes[number] for number in opening.own}
        self._waiting = deque(self._lanes.values())
        share = _BLOCKS_BYTES // max(len(self._lanes), 1)
        self._block_bytes = min(max(share, _BLOCK_MIN_BYTES), _BLOCK_MAX_BYTES)
        self._is_away = False

    @override
    def _go_on(self) -> bool:
        if self.keeps_raw:
            raise SourceError("parts have no raw rows: use --ledger with the original file")
        try:
            for _ in range(len(self._waiting)):
                if self._take(self._waiting[0]):
                    self._waiting.rotate(-1)
                else:
                    self._waiting.popleft()
                if self._count >= self.batch_events:
                    break
        except StoreUnreachableError as error:
            self._tell_away(error)
            return False
        finally:
            self._count = 0
        self._is_away = False
        if not self._waiting:
            if self._stops is None:
                self._tell_end()
            self._finish()
        return True

    def _take(self, lane: PartLane) -> bool:
        done, room = lane.done, self.batch_events
        if self._stops is not None:
            room = min(room, self._stops[lane.number] - done.taken)
        if room <= 0 or done.at >= self._parts[lane.number].size_bytes:
            return False
        frame = lane.frame or self._next(lane)
        events, letters, rows = frame.events, frame.letters, frame.rows
        steps = max(len(events), rows, 1)
        stop = min(done.step + room, steps)
        lane.events = events[len(events) * done.step // steps : len(events) * stop // steps]
        # dead letters first, then duplicates; their order within a partition does not matter
        first, last = rows * done.step // steps, rows * stop // steps
        lane.dead_letters = letters[first:last]
        lane.late_rows = sum(letter.route == "late" for letter in lane.dead_letters)
        known = range(len(letters), len(letters) + frame.duplicate_rows)
        lane.duplicate_rows = len(range(max(first, known.start), min(last, known.stop)))
        lane.accepted_rows = last - first - len(lane.dead_letters) - lane.duplicate_rows
        lane.raw_bytes = frame.raw_bytes * stop // steps - frame.raw_bytes * done.step // steps
        at, step = done.at, stop
        if stop == steps:
            at, step, lane.frame = lane.end, 0, None
        self._count += len(lane.events)
        taken = done.taken + last - first
        position = PartPosition(at=at, step=step, taken=taken, digest=self._digest)
        self._ready.append(lane.cut(position))
        return True

    def _next(self, lane: PartLane) -> Frame:
        name, at = f"{self._digest}/{part_name(lane.number)}", lane.end
        try:
            line = self._line(lane, name)
            lane.frame = Frame.decode(line, lane.number)
        except StoreUnreachableError:
            raise
        except (OSError, StoreError, ValueError, *DECODE_ERRORS) as error:
            raise SourceError(
                f"{self._objects.place}/{name} cannot be read at byte {at} "
                f"({error.__cause__ or error}): run walle partition again"
            ) from error
        lane.end = at + len(line)
        return lane.frame

    def _line(self, lane: PartLane, name: str) -> bytes:
        at = lane.end
        while not (stop := lane.block.find(b"\n", at - lane.block_at) + 1):
            rest = lane.block[at - lane.block_at :]
            left = self._parts[lane.number].size_bytes - at - len(rest)
            size = min(left, self._block_bytes)
            more = self._objects.read(name, at + len(rest), size) if left else b""
            if not more:
                return rest  # a truncated line without its end
            lane.block, lane.block_at = rest + more, at
        return lane.block[at - lane.block_at : stop]

    def _tell_away(self, error: StoreUnreachableError) -> None:
        if not self._is_away:
            _log.warning("waiting for parts: %s", error)
        self._is_away = True

    @override
    def _position(self, lane: Lane[PartPosition], *, is_end: bool = False) -> PartPosition:
        done = lane.done
        return msgspec.structs.replace(done, is_end=True, digest=self._digest) if is_end else done

    @property
    @override
    def progress(self) -> float:
        """Share of the wanted parts that was read, 0 to 1."""
        size = sum(self._parts[number].size_bytes for number in self._lanes)
        return 1.0 - self.unread.size_bytes / size if size else 1.0

    @property
    @override
    def unread(self) -> Unread:
        """Unread rows and bytes of the wanted parts."""
        left = [(self._parts[number], lane.done) for number, lane in self._lanes.items()]
        rows = sum(part.rows - done.taken for part, done in left)
        return Unread(rows, sum(part.size_bytes - done.at for part, done in left))


def _stops(taken: Sequence[int], rows: Sequence[int], limit: int) -> list[int]:
    """Return the row at which each part stops, to read ``limit`` more, least-read parts first."""

    def at(level: int) -> list[int]:
        return [max(min(level, most), done) for most, done in zip(rows, taken, strict=True)]

    goal = sum(taken) + limit
    level = bisect_right(range(max(rows) + 1), goal, key=lambda each: sum(at(each))) - 1
    found, left = at(level), goal - sum(at(level))
    for number, above in enumerate(at(level + 1)):
        if above > found[number] and left:
            found[number], left = above, left - 1
    return found
