"""Events of one device: a file of lines that grows, or standard input.

Where a file stands is in the offset, as for any file of events. Standard input has no
position: an offset only counts what came, and keeps where the file stood, so that a device
may be given both, one after the other.
"""

import os
import select
import stat
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Final, override

import msgspec

from walle_connectors.events.lanes import Lane
from walle_connectors.events.lines import CHUNK_BYTES, EventsReader
from walle_connectors.events.offsets import Position
from walle_connectors.file_stream import READ_ERRORS, FileStream
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SourceChangedError, SourceError, SourceNotFoundError
from walle_stream.events import Event
from walle_stream.ports import SourceBatch, Unread

MAX_RECORD_BYTES: Final = 2**20
"""A longer line is a dead letter."""

STDIN: Final = "stdin"
"""What standard input is called in messages."""

_FORMAT: Final = "device-events"
_WAIT_S: Final = 0.005
_LINE_END_MS: Final = 1_000.0  # for the end of a line that was begun when reading stops
_BOM: Final = b"\xef\xbb\xbf"
_BUFFER_BYTES: Final = 8_192


class DevicePosition(Position, kw_only=True, forbid_unknown_fields=True):
    """Where a device's input stands."""

    is_stdin: bool = False
    """Whether ``at``, ``line`` and ``tail`` are of standard input, in its last run."""
    runs: int = 0
    """How often standard input was read: what comes again is new."""
    file: tuple[int, int, tuple[int, int]] = (0, 0, (0, 0))
    """``at``, ``line`` and ``tail`` of the file, while they are of standard input."""


class _Stdin:
    """What ``LaneReader`` wants of a stream, and reading that never waits for long."""

    name = STDIN
    progress = -1.0
    unread = Unread()

    def __init__(self) -> None:
        self._is_begun = False

    @property
    def may_grow(self) -> bool:
        """Whether more may come behind an end: behind that of a pipe nothing does."""
        return stat.S_ISREG(os.fstat(0).st_mode)

    def read(self, wait_s: float, size: int = CHUNK_BYTES) -> bytes | None:
        try:
            if not select.select([0], [], [], wait_s)[0]:
                return None
            data = os.read(0, size)
        except OSError as error:
            raise SourceError(f"{STDIN} cannot be read ({error}): give --events FILE") from error
        if not self._is_begun:
            self._is_begun, data = True, data.removeprefix(_BOM)
        return data

    def close(self) -> None:
        """Leave it open: it is the process's."""


class _File(FileStream):
    """A file, which may grow."""

    may_grow = True

    def __init__(self, path: Path, *, follows: bool) -> None:
        if not path.is_file():
            raise SourceNotFoundError(f"there is no file {str(path)!r}: correct --events")
        super().__init__(path, _BUFFER_BYTES)
        self._path = path
        self._opened = path.stat()
        if follows and self.is_gzip:
            self.close()
            raise SourceError(
                f"{self.name} is compressed and cannot be followed: leave out --follow"
            )

    @property
    def is_gzip(self) -> bool:
        return self._gzip is not None

    def take(self, row: int) -> bytes:
        try:
            return self.bytes.read(CHUNK_BYTES)
        except READ_ERRORS as error:
            raise SourceError(
                f"{self.name} cannot be read on after line {row} ({error}): repair the file and "
                "run again; lines up to there are kept"
            ) from error

    def check(self, at: int) -> None:
        """Look at a file that is followed.

        Raises:
            SourceChangedError: It was replaced, or has fewer bytes than were read.
        """
        try:
            now = self._path.stat()
        except OSError:
            return  # taken away for a moment, by who writes it
        if not os.path.samestat(now, self._opened) or now.st_size < at:
            raise SourceChangedError(
                f"{self.name} was replaced or cut while it was followed: append to it, or give "
                "its events on standard input"
            )


class DeviceReader(EventsReader):
    """The input of one device. One thread."""

    _beginning = DevicePosition()

    def __init__(
        self,
        stream: _Stdin | _File,
        device_id: str,
        partition: int,
        offset: bytes | None,
        *,
        batch_events: int,
        follows: bool,
    ) -> None:
        """Begin behind an offset.

        Args:
            stream: Taken.
            device_id: Whose events these are; a line of another one ends the reading.
            partition: Where the device is.
            offset: The last committed one.
            batch_events: Most events in a batch.
            follows: Whether an end is only for now, and if it is none, closes no page.

        Raises:
            SourceError: The offset is not of a device's events.
            SourceChangedError: The file differs from what was read before.
        """
        self._device, self._follows, self._input = device_id, follows, stream
        self._runs, self._kept = 0, (0, 0, (0, 0))
        self._refusal: SourceError | None = None
        self._too_long: tuple[int, int] | None = None  # size and checksum so far
        super().__init__(
            stream=stream,  # type: ignore[arg-type]  # _start uses of _Stdin what it has
            offsets={} if offset is None else {0: offset},
            partition_count=1,
            batch_events=batch_events,
            limit=None,
            max_record_bytes=MAX_RECORD_BYTES,
        )
        self._lanes[0].number = partition

    @override
    def _start(self, positions: Sequence[Position]) -> None:
        [position] = positions
        if not isinstance(position, DevicePosition):
            raise TypeError(type(position).__name__)
        self._runs = position.runs
        own = (position.at, position.line, position.tail)
        self._kept = position.file if position.is_stdin else own
        if isinstance(self._input, _File):
            if position.is_stdin:
                at, line, tail = self._kept
                position = DevicePosition(at=at, line=line, tail=tail, runs=self._runs)
                self._lanes[0].done = position
            super()._start([position])
            return
        self._runs += 1
        self._lanes[0].done = DevicePosition()
        self._tail = (0, 0)
        self._lines, self._next, self._block, self._rest = [], 0, b"", b""
        self._is_behind = True

    @override
    def read(self) -> Sequence[SourceBatch]:
        """Read on until a batch is full or nothing is there for the moment.

        Raises:
            SourceError: The input cannot be read on, or a line is another device's; what
                stands before it was returned.
        """
        if self._refusal is not None and not self._ready:
            raise self._refusal
        try:
            while not self._ready and not self._is_done:
                if not self._go_on():
                    if not self._is_at_end:
                        self._flush()
                        break
                    self._end()
                if self._at >= self._flush_at:
                    self._flush()
        except SourceError as error:
            self._flush()
            if not self._ready:
                raise
            self._refusal = error
        return self._hand_out()

    @override
    def drain(self) -> Sequence[SourceBatch]:
        """Return what was read but not yet returned; of standard input every whole line."""
        if isinstance(self._input, _Stdin) and self._refusal is None:
            ends_ms = monotonic_ms() + _LINE_END_MS
            while self._rest and not self._is_at_end and monotonic_ms() < ends_ms:
                # byte by byte: what stands behind the line is the next run's
                data = self._input.read(_WAIT_S, 1)
                if data is not None:
                    self._take_all()
                    self._split(data)
            self._take_all()
        return super().drain()

    @override
    def _split(self, data: bytes) -> None:
        if self._too_long is None:
            super()._split(data)
            return
        # the rest of a line that is too long: a pipe, and a file that grows, give it bit by bit
        self._lines, self._next = [], 0
        part, has_end, data_behind = data.partition(b"\n")
        size, digest = self._too_long
        size, digest = self._too_long = size + len(part), zlib.crc32(part, digest)
        if data and not has_end:
            return
        self._too_long = None
        self._refuse_oversized(size, digest)
        if not data or data_behind:
            super()._split(data_behind)

    @override
    def _skip_oversized(self) -> None:
        self._too_long = len(self._rest), zlib.crc32(self._rest)

    def _take_all(self) -> None:
        while self._block or self._next < len(self._lines):
            super()._go_on()

    @override
    def _go_on(self) -> bool:
        if self._block or self._next < len(self._lines):
            return super()._go_on()
        if self._is_at_end:
            return False
        if isinstance(self._input, _Stdin):
            data = self._input.read(_WAIT_S)
        else:
            data = self._input.take(self._row)
            if not data and self._follows:
                self._input.check(self._at + len(self._rest))
        if data is None:
            return False
        if not data and self._follows and self._input.may_grow:
            Flag().wait(_WAIT_S)  # no more for now
            return False
        self._split(data)
        return True

    @override
    def _end(self) -> None:
        if not self._follows:
            super()._end()
            return
        # who wrote into the pipe has gone, and may begin again: that closes no page
        self._flush()
        self._is_done = True

    @override
    def _decode_block(self, block: bytes, count: int) -> list[Event] | None:
        try:
            return super()._decode_block(block, count)
        except SourceError:
            return None  # line by line, which finds the place

    @override
    def _take(self) -> None:
        """Take a line.

        Raises:
            SourceError: It is another device's; the reader stands before it.
        """
        line = self._lines[self._next]
        before = self._at, self._row, self._tail
        self._at, self._row = self._at + len(line) + 1, self._row + 1
        try:
            found = self._strange(line)
        except SourceError:
            self._at, self._row, self._tail = before
            raise
        self._next += 1
        self._stand(self._at, self._row, line)
        [lane] = self._lanes
        if found is not None and self._at > lane.done.at:
            lane.events.append(found[0])
            self._count += 1
            lane.raw_bytes += len(line) + 1
            if self.keeps_raw:
                lane.raw.append(line + b"\n")
        if lane.rows >= self.batch_events:
            self._cut()

    @override
    def _remember(self, device_id: str) -> Lane[Position]:
        if device_id != self._device:
            raise SourceError(
                f"{self._name}:{self._row}: the event is of device {device_id!r}, this is the "
                f"agent of {self._device!r}: correct the line, or give it to its own agent; what "
                "stands before it is committed"
            )
        return super()._remember(device_id)

    @override
    def _position(self, *, is_end: bool = False) -> Position:
        position = DevicePosition(
            at=self._at, line=self._row, tail=self._tail, is_end=is_end, runs=self._runs
        )
        if isinstance(self._input, _Stdin):
            return msgspec.structs.replace(position, is_stdin=True, file=self._kept)
        return position


class DeviceEvents:
    """The input of one device as a ``ports.Source``."""

    def __init__(self, path: Path | None, device_id: str, partition: int, *, follows: bool) -> None:
        """Keep what to open.

        Args:
            path: JSON Lines; None for standard input.
            device_id: Whose events.
            partition: Where the device is.
            follows: Whether more is waited for at the end.
        """
        self._path, self._device, self._partition = path, device_id, partition
        self._follows = follows

    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The device: its input may be a file one day and a pipe the next."""
        return {"format": _FORMAT, "device": self._device}

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse the data directory of another device, or of a pipeline's run.

        Raises:
            SourceChangedError: It is one.
        """
        if stored.get("format") != _FORMAT:
            raise SourceChangedError(
                "the data directory was made by walle run, not by the agent of a device: give "
                "another --data-dir"
            )
        if stored.get("device") != self._device:
            raise SourceChangedError(
                f"the data directory is of device {stored.get('device')!r}, not of "
                f"{self._device!r}: give each device its own --data-dir"
            )

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,  # noqa: ARG002 - it has one
        batch_events: int,
        limit: int | None = None,  # noqa: ARG002 - nobody gives one
    ) -> DeviceReader:
        """Open the input; see ``ports.Source``.

        Raises:
            SourceError: The file cannot be opened, or the offset is not its.
        """
        stream = _Stdin() if self._path is None else _File(self._path, follows=self._follows)
        try:
            return DeviceReader(
                stream,
                self._device,
                self._partition,
                offsets.get(self._partition),
                batch_events=batch_events,
                follows=self._follows,
            )
        except BaseException as error:
            stream.close()
            if isinstance(error, READ_ERRORS):
                raise SourceError(f"source {stream.name!r} cannot be read ({error})") from error
            raise
