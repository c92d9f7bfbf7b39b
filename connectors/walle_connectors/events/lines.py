"""Reads a file of events, chunk by chunk; each line is only decoded, once.

Each line belongs to its device's partition. A partition's offset is a place in the file: all
lines before it are accounted for, whatever other partitions have read. So a reader needs no
state. It begins at the lowest place, and skips lines that are accounted for. Partitions without
events keep up, so it skips at most ``FLUSH_BYTES`` and a batch.
"""

import zlib
from collections.abc import Sequence
from typing import Final, override

import msgspec

from walle_connectors.events.offsets import LinePosition
from walle_connectors.file_stream import READ_ERRORS, FileReader
from walle_stream.errors import SourceChangedError
from walle_stream.events import Event
from walle_stream.ports import DeadLetterRoute
from walle_stream.reading import Lane, record_dead_letter
from walle_stream.reading.dead_letters import DECODE_ERRORS, decode_problem
from walle_stream.types import device_id_problem

CHUNK_BYTES: Final = 2**16
"""Bytes per read; small enough to be decoded while they are in the processor's caches."""

type _Lane = Lane[LinePosition]

_decoder = msgspec.json.Decoder(Event)
_decode, _decode_lines = _decoder.decode, _decoder.decode_lines


class EventsReader(FileReader[LinePosition]):
    """A file opened at its partitions' offsets. One thread."""

    _block = _rest = b""  # lines in one piece, if they can be decoded together
    _lines: Sequence[bytes] = ()
    _next = 0
    _too_long: tuple[int, int] | None = None  # size and checksum so far
    _is_at_end = False
    _is_behind = True  # lines may be accounted for in some partitions

    @override
    def _start(self, positions: Sequence[LinePosition]) -> None:
        for position in positions:
            self._check(position)
        first, file = positions[0], self._stream.bytes
        file.seek(first.at)
        if not first.at:
            self._stream.skip_mark()
        self._at, self._row, self._tail = file.tell(), first.line, first.tail

    # Reading

    @override
    def _go_on(self) -> bool:
        if self._block:
            self._take_block()
        elif self._next < len(self._lines):
            self._take()
        elif self._is_at_end:
            self._tell_end()
            self._finish()
        else:
            data = self._chunk()
            if data is None:
                return False
            self._split(data)
        return True

    def _chunk(self) -> bytes | None:
        """Read the next chunk; empty at the end, None if there is no data at the moment."""
        try:
            return self._stream.bytes.read(CHUNK_BYTES)
        except READ_ERRORS as error:
            raise self._stream.failure(f"after line {self._row}", error) from error

    def _split(self, data: bytes) -> None:
        self._lines, self._next = [], 0
        if self._too_long is not None:
            # the rest of an oversized line
            part, has_end, behind = data.partition(b"\n")
            size, digest = self._too_long
            self._too_long = size + len(part), zlib.crc32(part, digest)
            if data and not has_end:
                return
            self._refuse_oversized(*self._too_long)
            self._too_long = None
            if data and not behind:
                return
            data = behind
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
        if len(self._rest) > self._max_bytes + CHUNK_BYTES:
            self._too_long = len(self._rest), zlib.crc32(self._rest)

    def _refuse_oversized(self, size: int, digest: int) -> None:
        """Account for the line that begins with ``_rest``, without its end."""
        line, self._rest = self._rest, b""
        self._refuse(line, "oversized", self._oversized(size), size_bytes=size)
        self._stand(self._at + size + 1, self._row + 1, (size, digest))

    def _take_block(self) -> None:
        block, self._block = self._block, b""
        count = block.count(b"\n") + 1
        events = self._decode_block(block, count)
        if events is None:
            self._lines, self._next = block.split(b"\n"), 0
            return
        if self._count and self._count + count > self.batch_events:
            self._cut()
        if len(self._lanes) == 1:
            [lane] = self._lanes.values()
            lane.events += events
            lane.raw_bytes += len(block) + 1
        else:
            homes = self._homes
            for event, line in zip(events, block.split(b"\n"), strict=True):
                lane = homes[event.device_id]
                lane.events.append(event)
                lane.raw_bytes += len(line) + 1
        self._count += count
        last = block[block.rfind(b"\n") + 1 :]
        self._stand(self._at + len(block) + 1, self._row + count, _tail_of(last))
        if self._count >= self.batch_events:
            self._cut()

    def _decode_block(self, block: bytes, count: int) -> list[Event] | None:
        # return None if any line needs its own decision
        self._is_behind = self._is_behind and any(
            self._at < lane.done.at for lane in self._lanes.values()
        )
        if (
            self.keeps_raw
            or count > self.batch_events
            or len(block) > self._max_bytes
            or self._is_behind
            or self._row + count > self._last_row
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
            self._home(device_id)
        return events

    def _take(self) -> None:
        lines, homes, batch_events = self._lines, self._homes, self.batch_events
        keeps_raw, max_size = self.keeps_raw, self._max_bytes + 1
        at, number, place, count = self._at, self._row, self._next, self._count
        stop = min(len(lines), place + self._last_row - number)
        event: Event | None
        lane: _Lane | None
        try:
            while place < stop and count < batch_events:
                line = lines[place]
                size = len(line) + 1  # with its end
                try:
                    event = _decode(line)
                    lane = homes[event.device_id]
                    is_plain = size <= max_size
                except (*DECODE_ERRORS, KeyError):
                    is_plain = False
                if not is_plain:
                    self._at, self._row = at, number
                    event, lane = self._strange(line)
                at += size
                number += 1
                place += 1
                if event is None or lane is None or at <= lane.done.at:
                    continue
                lane.events.append(event)
                count += 1
                lane.raw_bytes += size
                if keeps_raw:
                    lane.raw.append(line + b"\n")
        finally:
            if place > self._next:
                self._stand(at, number, _tail_of(lines[place - 1]))
            self._next, self._count = place, count
        if count >= batch_events:
            self._cut()

    def _stand(self, at: int, number: int, tail: tuple[int, int]) -> None:
        self._passed += at - self._at
        self._at, self._row, self._tail = at, number, tail

    def _strange(self, line: bytes) -> tuple[Event | None, _Lane | None]:
        # a device that is new here, or no event at all
        if not line.strip():
            return None, None
        if len(line) > self._max_bytes:
            self._refuse(line, "oversized", self._oversized(len(line)))
            return None, None
        try:
            event = _decode(line)
        except DECODE_ERRORS as error:
            self._refuse(line, *decode_problem(error))
            return None, None
        problem = device_id_problem(event.device_id)
        if problem:
            self._refuse(line, "invalid", problem)
            return None, None
        return event, self._home(event.device_id)

    def _oversized(self, size: int) -> str:
        return f"{size} bytes, at most {self._max_bytes} are allowed"

    def _refuse(
        self,
        line: bytes,
        route: DeadLetterRoute,
        reason: str,
        error: str = "",
        size_bytes: int | None = None,
    ) -> None:
        lane = next(iter(self._lanes.values()))  # its device is unknown
        if self._at < lane.done.at:
            return
        lane.raw_bytes += len(line) + 1
        if self.keeps_raw:
            lane.raw.append(line + b"\n")
        lane.dead_letters.append(
            record_dead_letter(
                line,
                route=route,
                reason=reason,
                origin=f"{self._name}:{self._row + 1}",
                error=error,
                size_bytes=size_bytes,
            )
        )

    # Places

    def _check(self, position: LinePosition) -> None:
        size, digest = position.tail
        if not position.at:
            return
        begin, data = position.at - 1 - size, b""
        if begin >= 0:
            self._stream.bytes.seek(begin)
            data = self._stream.bytes.read(size + 1)
        # check its end, too: a former last line may have been incomplete
        if zlib.crc32(data[:size]) != digest or data[size:] not in {b"\n", b""}:
            raise SourceChangedError(
                f"source {self._name!r} differs at line {position.line} from what was read before "
                "(it may have been incomplete): use the same file, or start with a new --data-dir"
            )

    @override
    def _position(self, lane: _Lane, *, is_end: bool = False) -> LinePosition:
        return LinePosition(at=self._at, line=self._row, tail=self._tail, is_end=is_end)

    @override
    def _time_of(self, tail: bytes) -> int:
        try:
            return _decode(tail.rstrip(b"\n").rpartition(b"\n")[2]).ingest_time_ms
        except DECODE_ERRORS:
            return -1


def _tail_of(line: bytes) -> tuple[int, int]:
    return len(line), zlib.crc32(line)
