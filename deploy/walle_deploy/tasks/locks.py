"""One walle command at a time in a repository, and what a killed one left is mended.

The lock is a file ``walle.lock`` in the repository's folder, held by the kernel as long as the
command or a git that it started lives. It holds a note of what is being done; who takes the
lock and finds a note knows that its writer died, and takes away the ``*.lock`` files of git
that were made since. Plain git commands of users do not look at it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from walle_stream.errors import ConflictError, GitError
from walle_stream.store.locks import lock_within

_NAME: Final = "walle.lock"
_FORMAT: Final = "1"


class RepositoryLock:
    """Held while a command changes a repository."""

    def __init__(self, folder: Path, wait_s: float = 60.0) -> None:
        """Take nothing yet; the folder is the repository's own, such as ``shop.git``."""
        self._path = folder / _NAME
        self._wait_s = wait_s
        self.descriptor = -1
        """The open file, for processes that must end before the lock is free."""
        self._has_note = False
        self.left: dict[str, str] = {}
        """What a killed command was doing; empty when the last one ended."""

    def __enter__(self) -> Self:
        """Wait for the lock, then mend what a killed command left.

        Raises:
            ConflictError: Another command holds it for too long.
            GitError: The folder cannot be written, or a newer walle left something there.
        """
        try:
            self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise GitError(f"{self._path} cannot be opened: {error.strerror}") from error
        try:
            self._wait()
            began_ns = os.fstat(self.descriptor).st_mtime_ns
            text = os.pread(self.descriptor, 65_536, 0)
            if text:
                self.left = self._read_note(text)
                _take_locks_away(self._path, began_ns)
            if not self.left:
                self.note({})
        except BaseException:
            os.close(self.descriptor)
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Give it back; what is half done, or may have reached others, stays noted."""
        if not self.left and (kind is None or not self._has_note):
            os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)

    def note(self, facts: Mapping[str, str]) -> None:
        """Say what is being done, for who comes after a kill."""
        data = msgspec.json.encode({"format": _FORMAT, **facts})
        # longer ones first padded: a kill in between leaves one line that can be read
        os.pwrite(self.descriptor, data + b"\n", 0)
        os.ftruncate(self.descriptor, len(data) + 1)
        self.left = {}
        self._has_note = bool(facts)

    def _read_note(self, text: bytes) -> dict[str, str]:
        try:
            note = msgspec.json.decode(text.splitlines()[0], type=dict[str, str])
        except msgspec.MsgspecError:
            return {}  # cut by the kill: nothing was done yet
        if note.pop("format", "") != _FORMAT:
            raise GitError(
                f"{self._path} is of another version of walle, which was killed here: run its "
                "command again with that one"
            )
        return note

    def _wait(self) -> None:
        if not lock_within(self.descriptor, self._wait_s):
            raise ConflictError(
                f"another walle command works in {self._path.parent} since over "
                f"{self._wait_s:g} s: wait for it, or end it"
            )


def _take_locks_away(own: Path, since_ns: int) -> None:
    for pattern in ("*.lock", "refs/**/*.lock"):
        for path in own.parent.glob(pattern):
            try:
                if path != own and path.stat().st_mtime_ns >= since_ns:
                    path.unlink()
            except FileNotFoundError:
                continue  # its git was still on its way out
