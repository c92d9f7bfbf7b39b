"""What a partition's commits let out, once they are durable: frames, and what parts said so of.

A device that forgot a commit in a power cut would make others of the same numbers: so nothing
of it leaves before. The next turns go on meanwhile; a bound holds for the bytes that wait.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from walle_stream.store.durability import Durability
from walle_stream.tunnel.session import UplinkSession
from walle_stream.types import UplinkFrame

WAITING_MAX_BYTES: Final = 4 * 1024 * 1024
"""Frames of a partition that wait for the disk; a commit beyond them waits, too."""


class _Commit(NamedTuple):
    ticket: int
    frames: Sequence[tuple[int, bytes]]
    size_bytes: int
    on_durable: Sequence[Callable[[], object]]


class Outgoing:
    """Of one partition, between two openings. One thread, the device host's.

    Methods that block for the disk raise ``WalleError`` where it failed.
    """

    def __init__(self, durability: Durability, session: UplinkSession) -> None:
        """Begin behind an opening, which made all that is stored durable."""
        self._durability = durability
        self._session = session
        self._waiting: deque[_Commit] = deque()
        self._waiting_bytes = 0

    def add(
        self,
        frames: Sequence[tuple[int, bytes]],
        on_durable: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Take frames (number, body) of the last commit; call functions once it is durable."""
        size_bytes = sum(len(body) for _, body in frames)
        self._waiting.append(_Commit(self._durability.written, frames, size_bytes, on_durable))
        self._waiting_bytes += size_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether something is not durable yet."""
        return bool(self._waiting)

    def step(self) -> list[UplinkFrame]:
        """Return the durable frames, each once; blocks for the disk where too many bytes wait."""
        leaving: list[UplinkFrame] = []
        waiting, durable = self._waiting, self._durability.durable()
        while waiting:
            if waiting[0].ticket > durable:
                if self._waiting_bytes <= WAITING_MAX_BYTES:
                    break
                self._durability.wait(waiting[0].ticket)
                durable = self._durability.durable()
            commit = waiting.popleft()
            self._waiting_bytes -= commit.size_bytes
            leaving += [self._session.frame(*frame) for frame in commit.frames]
            for call in commit.on_durable:
                call()
        return leaving

    def settle(self) -> list[UplinkFrame]:
        """Let everything out and return the frames to send, each once; blocks for the disk."""
        self._durability.wait()
        return self.step()
