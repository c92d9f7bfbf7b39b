"""Output of a partition's commits, released once they are durable: frames and callbacks.

A device that forgot a commit in a power cut would make other features with the same numbers.
Nothing of a commit therefore leaves before it is durable. The next turns continue meanwhile; the
waiting bytes are limited.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from walle_stream.store.durability import Durability
from walle_stream.tunnel.session import UplinkSession
from walle_stream.types import UplinkFrame

WAITING_MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes of a partition's frames that wait for the disk; above it a commit waits, too."""


class _Commit(NamedTuple):
    ticket: int
    frames: Sequence[tuple[int, bytes]]
    size_bytes: int
    on_durable: Sequence[Callable[[], object]]


class Outgoing:
    """Waiting output of one partition, between two openings. One thread, the device host's.

    Methods that block for the disk raise ``WalleError`` if it failed.
    """

    def __init__(self, durability: Durability, session: UplinkSession) -> None:
        """Begin after an opening, which made all stored data durable."""
        self._durability = durability
        self._session = session
        self._waiting: deque[_Commit] = deque()
        self._waiting_bytes = 0

    def add(
        self,
        frames: Sequence[tuple[int, bytes]],
        on_durable: Sequence[Callable[[], object]] = (),
    ) -> None:
        """Take (number, body) frames of the last commit, and callbacks for when it is durable."""
        size_bytes = sum(len(body) for _, body in frames)
        self._waiting.append(_Commit(self._durability.written, frames, size_bytes, on_durable))
        self._waiting_bytes += size_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether some commit is not durable yet."""
        return bool(self._waiting)

    def step(self) -> list[UplinkFrame]:
        """Return the durable frames, each once; blocks for the disk if too many bytes wait."""
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
        """Wait for the disk, then return all frames to send, each once."""
        self._durability.wait()
        return self.step()
