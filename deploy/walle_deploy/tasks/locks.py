"""A lock for one walle command at a time in a repository, which also repairs after a kill.

The lock is a file ``walle.lock`` in the repository's folder. The kernel holds the lock as long as
the command, or a git that it started, lives. The file has a note of the work in progress. A command
that finds a note knows that the note's writer was killed. It then removes the ``*.lock`` files that
git made since. Plain git commands of users ignore the lock.
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
    """A lock that a command holds while it changes a repository."""

    def __init__(self, folder: Path, wait_s: float = 60.0) -> None:
        """Set the repository's own folder, such as ``shop.git``, without taking the lock."""
        self._path = folder / _NAME
        self._wait_s = wait_s
        self.descriptor = -1
        """Open lock file, for processes that must end before the lock is free."""
        self._has_note = False
        self.left: dict[str, str] = {}
        """Note of a killed command; empty if the last command ended."""

    def __enter__(self) -> Self:
        """Wait for the lock, then repair after a killed command.

        Raises:
            ConflictError: Another command holds the lock for too long.
            GitError: The folder is not writable, or has a note of another version of walle.
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
        """Release the lock; a note stays if the work is incomplete or may have reached others."""
        if not self.left and (kind is None or not self._has_note):
            os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)

    def note(self, facts: Mapping[str, str]) -> None:
        """Note the work in progress, for the next command after a kill."""
        data = msgspec.json.encode({"format": _FORMAT, **facts})
        # written before the cut: after a kill in between, the new note is the file's first line
        os.pwrite(self.descriptor, data + b"\n", 0)
        os.ftruncate(self.descriptor, len(data) + 1)
        self.left = {}
        self._has_note = bool(facts)

    def _read_note(self, text: bytes) -> dict[str, str]:
        try:
            note = msgspec.json.decode(text.splitlines()[0], type=dict[str, str])
        except msgspec.MsgspecError:
            return {}  # cut by the kill, before any work was done
        if note.pop("format", "") != _FORMAT:
            raise GitError(
                f"{self._path} is of another version of walle, which was killed here: run its "
                "command again with that version"
            )
        return note

    def _wait(self) -> None:
        if not lock_within(self.descriptor, self._wait_s):
            raise ConflictError(
                f"another walle command has worked in {self._path.parent} for over "
                f"{self._wait_s:g} s: wait for it, or end it"
            )


def _take_locks_away(own: Path, since_ns: int) -> None:
    for pattern in ("*.lock", "refs/**/*.lock"):
        for path in own.parent.glob(pattern):
            try:
                if path != own and path.stat().st_mtime_ns >= since_ns:
                    path.unlink()
            except FileNotFoundError:
                continue  # the git process was still about to end
