"""Reads a file of events, chunk by chunk; a line is decoded once and nothing else is done.

Each line belongs to its device's partition. A partition's offset is a place in
the file: what stands before it is accounted, whatever other partitions have
seen. So a reader begins at the place furthest behind and passes over what is
accounted already; no state is needed. Partitions without events keep up, so that
is at most ``FLUSH_BYTES`` and a batch.
"""

import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from walle_connectors.dead_letters import record_dead_letter
from walle_connectors.event_text import DECODE_ERRORS, decode_problem
from walle_connectors.events.lane_reader import LaneReader
from walle_connectors.events.lanes import Lane
from walle_connectors.events.offsets import Position
from walle_connectors.file_stream import READ_ERRORS
from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.events import Event
from walle_stream.ports import DeadLetterRoute
from walle_stream.types import device_id_problem

CHUNK_BYTES: Final = 2**16
"""How much is read at once: few enough to be decoded while it is in the processor's caches."""

type _Lane = Lane[Position]

_decoder = msgspec.json.Decoder(Event)
_decode, _decode_lines = _decoder.decode, _decoder.decode_lines


class EventsReader(LaneReader[Position]):
    """A file that was opened at its partitions' offsets. One thread."""

    _beginning = Position()

    def _start(self, positions: Sequence[Position]) -> None:
        self._bytes = self._stream.bytes
        for position in positions:
            self._check(position)
        first = positions[0]
        self._bytes.seek(first.at)
        if not first.at:
            self._stream.skip_mark()
        self._at, self._row, self._tail = self._bytes.tell(), first.line, first.tail
        self._lines: list[bytes] = []
        self._block = b""  # lines in one piece, if they can be taken so
        self._rest = b""
        self._next = 0
        self._is_behind = True  # some lines may be accounted, in some partitions

    # Reading

    def _go_on(self) -> bool:
        if self._block:
            self._take_block()
        elif self._next < len(self._lines):
            self._take()
        elif self._is_at_end:
            return False
        else:
            self._read_chunk()
        return True

    def _read_chunk(self) -> None:
        try:
            data = self._bytes.read(CHUNK_BYTES)
        except READ_ERRORS as error:
            raise SourceError(
                f"source {self._name!r} cannot be read on after line {self._row} ({error}): "
                "repair the file and run again; lines up to there are kept"
            ) from error
        self._split(data)

    def _split(self, data: bytes) -> None:
        self._lines, self._next = [], 0
        if not data:
            # a last line without its end counts as one
            self._lines, self._rest = [self._rest] if self._rest else [], b""
            self._is_at_end = True
            return
        whole, is_cut, rest = data.rpartition(b"\n")
        if is_cut:
            self._block = self._rest + whole
            self._rest = rest
        else:
            self._rest += rest
        # whatever its length, a line is kept whole until its end: chunks of it that were
        # given up would have to be found again after a restart
        if len(self._rest) > self._max_bytes + CHUNK_BYTES:
            self._skip_oversized()

    def _skip_oversized(self) -> None:
        size, part = len(self._rest), self._rest
        digest = zlib.crc32(part)
        while part and not part.endswith(b"\n"):
            part = self._bytes.readline(CHUNK_BYTES)
            size += len(part)
            digest = zlib.crc32(part.removesuffix(b"\n"), digest)
        self._refuse_oversized(size - part.endswith(b"\n"), digest)

    def _refuse_oversized(self, size: int, digest: int) -> None:
        """Account the line that ``_rest`` is the beginning of, without its end."""
        line, self._rest = self._rest, b""
        self._row += 1
        self._at += size + 1
        self._tail = (size, digest)
        reason = f"{size} bytes, at most {self._max_bytes} are allowed"
        self._refuse(line, "oversized", reason, size_bytes=size)

    def _take_block(self) -> None:
        """Take a block of plain lines at once, or leave it to ``_take``."""
        block, self._block = self._block, b""
        count = block.count(b"\n") + 1
        events = self._decode_block(block, count)
        if events is None:
            self._lines, self._next = block.split(b"\n"), 0
            return
        if self._count and self._count + count > self.batch_events:
            self._cut()
        if len(self._lanes) == 1:
            [lane] = self._lanes
            lane.events += events
            lane.raw_bytes += len(block) + 1
        else:
            homes = self._homes
            for event, line in zip(events, block.split(b"\n"), strict=True):
                lane = homes[event.device_id]
                lane.events.append(event)
                lane.raw_bytes += len(line) + 1
        self._count += count
        self._stand(self._at + len(block) + 1, self._row + count, block[block.rfind(b"\n") + 1 :])
        if self._count >= self.batch_events:
            self._cut()

    def _decode_block(self, block: bytes, count: int) -> list[Event] | None:
        # nothing may have to be decided line by line
        self._is_behind = self._is_behind and any(self._at < lane.done.at for lane in self._lanes)
        if (
            self.keeps_raw
            or count > self.batch_events
            or len(block) > self._max_bytes
            or self._is_behind
            or (self._last_row is not None and self._row + count > self._last_row)
        ):
            return None
        try:
            events = _decode_lines(block)
        except DECODE_ERRORS:
            return None
        if len(events) != count:
            return None  # blank lines
        for device_id in {event.device_id for event in events} - self._homes.keys():
            if device_id_problem(device_id):
                return None
            self._remember(device_id)
        return events

    def _take(self) -> None:
        """Take lines until a batch is full or none is left; the hot loop."""
        lines, homes, batch_events = self._lines, self._homes, self.batch_events
        keeps_raw = self.keeps_raw
        at, number, place = self._at, self._row, self._next
        max_size = self._max_bytes + 1
        stop = len(lines)
        if self._last_row is not None:
            stop = min(stop, place + self._last_row - number)
        line, size, count = b"", 0, self._count
        while place < stop:
            line = lines[place]
            place += 1
            number += 1
            size = len(line) + 1  # with its end
            at += size
            try:
                event = _decode(line)
                lane = homes[event.device_id]
                is_plain = size <= max_size
            except (*DECODE_ERRORS, KeyError):
                is_plain = False
            if not is_plain:
                self._at, self._row = at, number
                found = self._strange(line)
                if found is None:
                    continue
                event, lane = found
            if at <= lane.done.at:
                continue
            lane.events.append(event)
            count += 1
            lane.raw_bytes += size
            if keeps_raw:
                lane.raw.append(line + b"\n")
            if count >= batch_events:
                self._stand(at, number, line)
                self._cut()
                count = 0
                break
        self._count = count
        self._next = place
        if size:
            self._stand(at, number, line)

    def _stand(self, at: int, number: int, line: bytes) -> None:
        self._at, self._row = at, number
        self._tail = (len(line), zlib.crc32(line))

    def _strange(self, line: bytes) -> tuple[Event, _Lane] | None:
        # a device that was not seen yet, or no event at all
        if not line.strip():
            return None
        if len(line) > self._max_bytes:
            self._refuse(
                line, "oversized", f"{len(line)} bytes, at most {self._max_bytes} are allowed"
            )
            return None
        try:
            event = _decode(line)
        except DECODE_ERRORS as error:
            self._refuse(line, *decode_problem(error))
            return None
        problem = device_id_problem(event.device_id)
        if problem:
            self._refuse(line, "invalid", problem)
            return None
        return event, self._remember(event.device_id)

    def _refuse(
        self,
        line: bytes,
        route: DeadLetterRoute,
        reason: str,
        error: str = "",
        size_bytes: int | None = None,
    ) -> None:
        lane = self._lanes[0]  # whose it is cannot be known
        if self._at <= lane.done.at:
            return
        lane.raw_bytes += len(line) + 1
        if self.keeps_raw:
            lane.raw.append(line + b"\n")
        lane.dead_letters.append(
            record_dead_letter(
                line,
                route=route,
                reason=reason,
                origin=f"{self._name}:{self._row}",
                error=error,
                size_bytes=size_bytes,
            )
        )

    def _check(self, position: Position) -> None:
        size, digest = position.tail
        if not position.at:
            return
        begin = position.at - 1 - size
        data = b""
        if begin >= 0:
            self._bytes.seek(begin)
            data = self._bytes.read(size + 1)
        # its end, too: what was a last line may have been half of one
        if zlib.crc32(data[:size]) != digest or data[size:] not in {b"\n", b""}:
            raise SourceChangedError(
                f"source {self._name!r} differs at line {position.line} from what was read before "
                "(it may have been incomplete): give the same file, or start with a new --data-dir"
            )

    def _position(self, *, is_end: bool = False) -> Position:
        return Position(at=self._at, line=self._row, tail=self._tail, is_end=is_end)
