"""What a partition's commits let out, once they are durable: frames, letters, forgotten messages.

A device that forgot a commit in a power cut would make others of the same numbers: so nothing
of it leaves before. The next turns go on meanwhile; a bound holds for the bytes that wait.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from walle_stream.store.durability import Durability
from walle_stream.tunnel.letters import LetterSession
from walle_stream.tunnel.session import UplinkSession

WAITING_MAX_BYTES: Final = 4 * 1024 * 1024
"""Frames of a partition that wait for the disk; a commit beyond them waits, too."""


class _Commit(NamedTuple):
    ticket: int
    frames: Sequence[tuple[int, bytes]]
    size_bytes: int
    last_letter: int
    downlink_position: int


class Outgoing:
    """Of one partition, between two openings. One thread, the device host's."""

    def __init__(
        self,
        durability: Durability,
        session: UplinkSession,
        letters: LetterSession | None,
        release: Callable[[int], None],
        last_letter: int,
    ) -> None:
        """Begin behind an opening, which made all that is stored durable.

        Args:
            durability: Of the partition's store.
            session: Takes the frames.
            letters: Sends dead letters; None where none are sent.
            release: Lets the tunnel forget messages down to a position.
            last_letter: Number of the last one that is stored.
        """
        self._durability = durability
        self._session = session
        self._letters = letters
        self._release = release
        self._last_letter = last_letter
        self._waiting: deque[_Commit] = deque()
        self._waiting_bytes = 0

    def add(
        self, frames: Sequence[tuple[int, bytes]], last_letter: int, downlink_position: int
    ) -> None:
        """Take what the commit that was just made lets out; may block, for disk and tunnel.

        Args:
            frames: (number, body), as stored.
            last_letter: Number of its last dead letter.
            downlink_position: Of the last message that it took.

        Raises:
            WalleError: The disk failed, or the tunnel was closed.
        """
        size_bytes = sum(len(body) for _, body in frames)
        commit = _Commit(
            self._durability.written, frames, size_bytes, last_letter, downlink_position
        )
        self._waiting.append(commit)
        self._waiting_bytes += size_bytes
        self.step()
        while self._waiting_bytes > WAITING_MAX_BYTES:
            self._durability.wait(self._waiting[0].ticket)
            self.step()

    @property
    def is_waiting(self) -> bool:
        """Whether something is not durable yet."""
        return bool(self._waiting)

    def step(self) -> None:
        """Let out what is durable; blocks where the tunnel is full.

        Raises:
            WalleError: The disk failed, or the tunnel was closed.
        """
        waiting, durable = self._waiting, self._durability.durable()
        while waiting and waiting[0].ticket <= durable:
            commit = waiting.popleft()
            self._waiting_bytes -= commit.size_bytes
            for frame in commit.frames:
                self._session.offer(*frame)
            self._release(commit.downlink_position)
            self._last_letter = commit.last_letter
        if self._letters is not None:
            self._letters.pump(self._last_letter)

    def settle(self) -> None:
        """Let everything out; blocks for the disk.

        Raises:
            WalleError: The disk failed, or the tunnel was closed.
        """
        self._durability.wait()
        self.step()
