"""A connection through a link: two directions, each a queue of pieces with due times.

All code runs in the link's event loop.
"""

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from typing import Final

import msgspec

from walle_stream.testing.link.shape import Direction, LinkShape, Pacer

PIECE_BYTES: Final = 16_384
"""Largest number of bytes that are read and forwarded at once."""

HELD_MAX_BYTES: Final = 1 << 20
"""Limit of the bytes in flight in one direction; the sender waits beyond it."""

# in a queue of pieces: the sender reset its end; b"" is an orderly end
_BROKEN: Final = None
_RESET: Final = struct.pack("ii", 1, 0)


class Lane(msgspec.Struct):
    """The state of one direction of a link, shared by its connections."""

    direction: Direction
    shape: LinkShape = msgspec.field(default_factory=LinkShape)
    is_stalled: bool = False
    is_cut: bool = False
    delivered_bytes: int = 0
    lost_bytes: int = 0


class Pipe:
    """One direction of one connection."""

    def __init__(
        self,
        lane: Lane,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        changed: asyncio.Condition,
        seed: str,
    ) -> None:
        """Connect two ends.

        Args:
            lane: State of the direction.
            reader: Source of the bytes.
            writer: Destination of the bytes.
            changed: Notified when a lane changes; shared by the whole link.
            seed: Seed of the jitter.
        """
        self._lane = lane
        self._reader = reader
        self._writer = writer
        self._changed = changed
        self._pacer = Pacer(seed)
        self._pieces: deque[tuple[float, bytes | None]] = deque()
        self._held_bytes = 0
        self.is_torn = False
        """Whether bytes were lost, so that the connection cannot continue after a cut."""

    async def run(self) -> None:
        """Forward until the sender's end has been delivered."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take())
            group.create_task(self._deliver())

    async def _take(self) -> None:
        clock = asyncio.get_running_loop().time
        piece: bytes | None = b"?"
        while piece:
            try:
                piece = await self._reader.read(PIECE_BYTES)
            except OSError:
                piece = _BROKEN
            due_s = self._pacer.due_s(self._lane.shape, clock(), len(piece or b""))
            async with self._changed:
                self._pieces.append((due_s, piece))
                self._held_bytes += len(piece or b"")
                self._changed.notify_all()
                await self._changed.wait_for(lambda: self._held_bytes < HELD_MAX_BYTES)

    async def _deliver(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._pieces)
                due_s = self._pieces[0][0]
            await asyncio.sleep(max(0.0, due_s - clock()))
            async with self._changed:
                await self._changed.wait_for(self._may_go)
                _, piece = self._pieces.popleft()
                self._held_bytes -= len(piece or b"")
                self._changed.notify_all()
            if piece is _BROKEN:
                raise ConnectionResetError
            if not piece:
                with suppress(OSError):
                    self._writer.write_eof()
                return
            await self._forward(piece)

    def _may_go(self) -> bool:
        lane = self._lane
        # an end is not lost in a cut: it is delivered after the cut
        return not lane.is_stalled and (bool(self._pieces[0][1]) or not lane.is_cut)

    async def _forward(self, piece: bytes) -> None:
        lane = self._lane
        self.is_torn = self.is_torn or lane.is_cut
        if not self.is_torn:
            try:
                self._writer.write(piece)
                await self._writer.drain()
            except OSError:
                # the closed end reports itself in the other direction, if that is open
                self.is_torn = True
        if self.is_torn:
            lane.lost_bytes += len(piece)
        else:
            lane.delivered_bytes += len(piece)


class Connection:
    """Both directions between a client and the target."""

    def __init__(self, up: Pipe, down: Pipe, writers: tuple[asyncio.StreamWriter, ...]) -> None:
        """Take over the ends; called in the task that runs the connection."""
        self._pipes = (up, down)
        self._writers = writers
        self._task = asyncio.current_task()

    @property
    def is_torn(self) -> bool:
        """Whether the connection lost bytes."""
        return any(pipe.is_torn for pipe in self._pipes)

    async def run(self) -> None:
        """Forward both ways until both have ended, or one end resets; then close."""
        try:
            async with asyncio.TaskGroup() as group:
                for pipe in self._pipes:
                    group.create_task(pipe.run())
        except* ConnectionResetError:
            self._abort()
        finally:
            for writer in self._writers:
                writer.close()
            for writer in self._writers:
                with suppress(OSError):
                    await writer.wait_closed()

    def reset(self) -> None:
        """Reset the connection at both ends; bytes in flight are lost."""
        self._abort()
        if self._task is not None:
            self._task.cancel()

    def _abort(self) -> None:
        for writer in self._writers:
            reset_writer(writer)


def reset_writer(writer: asyncio.StreamWriter) -> None:
    """Close one end with RST instead of FIN."""
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
