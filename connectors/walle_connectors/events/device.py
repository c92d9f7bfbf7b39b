"""Events of one device: a growing file of lines, or standard input.

The offset has the position in the file, as for any file of events. Standard input has no
position. Its offset counts the input, and keeps the file's position, so a device may get both,
one after the other.
"""

import os
import select
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Event as Flag
from typing import Final, cast, override

import msgspec

from walle_connectors.events.lines import CHUNK_BYTES, EventsReader
from walle_connectors.events.offsets import LinePosition
from walle_connectors.file_stream import FileSource, FileStream
from walle_stream.clock import monotonic_ms
from walle_stream.errors import SourceChangedError, SourceError, SourceNotFoundError
from walle_stream.events import Event
from walle_stream.ports import SourceBatch, Unread
from walle_stream.reading import Lane, Opening
from walle_stream.reading.offsets import Count

MAX_RECORD_BYTES: Final = 2**20
"""Longest line; a longer one is a dead letter."""

STDIN: Final = "stdin"

_FORMAT: Final = "device-events"
_WAIT_S: Final = 0.005
_LINE_END_MS: Final = 1_000.0  # wait for the end of a begun line when reading stops
_BOM: Final = b"\xef\xbb\xbf"
_BUFFER_BYTES: Final = 8_192


class DevicePosition(LinePosition, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Position in a device's input."""

    is_stdin: bool = False
    """Whether ``at``, ``line`` and ``tail`` belong to standard input, in its last run."""
    runs: Count = 0
    """Number of runs of standard input; each run's input is new."""
    file: tuple[Count, Count, tuple[Count, Count]] = (0, 0, (0, 0))
    """``at``, ``line`` and ``tail`` of the file, while the fields above are of standard input."""


class _Stdin:
    """Standard input with the interface of a stream; reads never wait for long."""

    name = STDIN
    progress = -1.0
    unread = Unread()

    def __init__(self) -> None:
        self._is_begun = False

    @property
    def may_grow(self) -> bool:
        """Whether more may come after an end: a file may grow, a pipe cannot."""
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

    def tail(self) -> bytes:
        return b""

    def close(self) -> None:
        """Leave standard input open, because it belongs to the process."""


class _File(FileStream):
    """A file that may grow."""

    may_grow = True

    def __init__(self, path: Path, *, follows: bool) -> None:
        if not path.is_file():
            raise SourceNotFoundError(f"there is no file {str(path)!r}: correct --events")
        super().__init__(path, _BUFFER_BYTES)
        self._path = path
        self._opened = path.stat()
        if follows and self._gzip is not None:
            self.close()
            raise SourceError(
                f"{self.name} is compressed and cannot be followed: leave out --follow"
            )

    def check(self, at: int) -> None:
        """Check a followed file for a change.

        Raises:
            SourceChangedError: The file was replaced, or is shorter than what was read.
        """
        try:
            now = self._path.stat()
        except OSError:
            return  # its writer may have moved it for a moment
        if not os.path.samestat(now, self._opened) or now.st_size < at:
            raise SourceChangedError(
                f"{self.name} was replaced or cut while it was followed: append to it, or pass "
                "its events on standard input"
            )


class DeviceReader(EventsReader):
    """The input of one device. One thread."""

    def __init__(
        self,
        stream: _Stdin | _File,
        device_id: str,
        opening: Opening,
        *,
        follows: bool,
    ) -> None:
        """Start at the offset of the device's partition; takes over the stream.

        A line of another device ends the reading. With ``follows``, the end of a file is
        temporary, and the end of a pipe closes no page.

        Raises:
            SourceError: The offset is not of a device's events.
            SourceChangedError: The file differs from what was read before.
        """
        self._device, self._follows, self._input = device_id, follows, stream
        self._runs, self._kept = 0, (0, 0, (0, 0))
        taken = cast("FileStream", stream)
        super().__init__(taken, opening, DevicePosition(), MAX_RECORD_BYTES)

    @override
    def _start(self, positions: Sequence[LinePosition]) -> None:
        [position] = positions
        [lane] = self._lanes.values()
        if not isinstance(position, DevicePosition):
            raise TypeError(type(position).__name__)
        own = (position.at, position.line, position.tail)
        self._runs, self._kept = position.runs, position.file if position.is_stdin else own
        if isinstance(self._input, _Stdin):
            self._runs += 1
            lane.done = DevicePosition()
            self._at, self._row, self._tail = 0, 0, (0, 0)
            return
        if position.is_stdin:
            at, line, tail = self._kept
            lane.done = position = DevicePosition(at=at, line=line, tail=tail, runs=self._runs)
        super()._start([position])

    @override
    def drain(self) -> Sequence[SourceBatch]:
        """Return events that were read but not yet returned; for standard input all whole lines."""
        if isinstance(self._input, _Stdin) and self._refusal is None:
            ends_ms = monotonic_ms() + _LINE_END_MS
            while self._rest and not self._is_at_end and monotonic_ms() < ends_ms:
                # byte by byte: bytes after this line belong to the next run
                data = self._input.read(_WAIT_S, 1)
                if data is not None:
                    self._take_all()
                    self._split(data)
            self._take_all()
        return super().drain()

    def _take_all(self) -> None:
        while self._block or self._next < len(self._lines):
            self._go_on()

    @override
    def _chunk(self) -> bytes | None:
        if isinstance(self._input, _Stdin):
            data = self._input.read(_WAIT_S)
        else:
            data = super()._chunk()
            if not data and self._follows:
                self._input.check(self._at + len(self._rest))
        if data == b"" and self._follows and self._input.may_grow:
            Flag().wait(_WAIT_S)  # no data at the moment
            return None
        return data

    @override
    def _tell_end(self) -> None:
        if self._follows:
            # the pipe's writer has ended, but another may start: no page is closed
            self._flush()
        else:
            super()._tell_end()

    @override
    def _decode_block(self, block: bytes, count: int) -> list[Event] | None:
        try:
            return super()._decode_block(block, count)
        except SourceError:
            return None  # the caller decodes line by line, which finds the place

    @override
    def _home(self, device_id: str) -> Lane[LinePosition]:
        if device_id != self._device:
            raise SourceError(
                f"{self._name}:{self._row + 1}: the event is of device {device_id!r}, but this is "
                f"the agent of {self._device!r}: correct the line, or pass it to its own agent; "
                "the lines before it are committed"
            )
        [lane] = self._lanes.values()
        self._homes[device_id] = lane
        return lane

    @override
    def _position(self, lane: Lane[LinePosition], *, is_end: bool = False) -> LinePosition:
        position = DevicePosition(
            at=self._at, line=self._row, tail=self._tail, is_end=is_end, runs=self._runs
        )
        if isinstance(self._input, _Stdin):
            return msgspec.structs.replace(position, is_stdin=True, file=self._kept)
        return position


class DeviceEvents(FileSource):
    """The input of one device as a ``ports.Source``."""

    def __init__(self, path: Path | None, device_id: str, partition: int, *, follows: bool) -> None:
        """Keep the path: JSON Lines of this device, or None for standard input.

        With ``follows``, the reader waits for more at the end.
        """
        super().__init__(path or Path(STDIN), _FORMAT)
        self._is_stdin = path is None
        self._device, self._partition, self._follows = device_id, partition, follows

    @override
    @property
    def fingerprint(self) -> Mapping[str, str | int]:
        """The device alone, because its input may be a file at first and a pipe later."""
        return {"format": _FORMAT, "device": self._device}

    @override
    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Refuse the data directory of another device, or of a pipeline's run.

        Raises:
            SourceChangedError: It is such a directory.
        """
        if stored.get("format") != _FORMAT:
            raise SourceChangedError(
                "the data directory was made by walle run, not by the agent of a device: use "
                "another --data-dir"
            )
        if stored.get("device") != self._device:
            raise SourceChangedError(
                f"the data directory is of device {stored.get('device')!r}, not of "
                f"{self._device!r}: give each device its own --data-dir"
            )

    @override
    def _open(self) -> FileStream:
        if self._is_stdin:
            return cast("FileStream", _Stdin())
        return _File(self.path, follows=self._follows)

    @override
    def _read(self, stream: FileStream, opening: Opening) -> DeviceReader:
        number = self._partition
        own = {number: opening.offsets[number]} if number in opening.offsets else {}
        opening = opening._replace(offsets=own, numbers=[number])
        given = cast("_Stdin | _File", stream)
        return DeviceReader(given, self._device, opening, follows=self._follows)
