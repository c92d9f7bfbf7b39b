"""Files that policies use: each is read whole, and again when it changes.

Invariants: a question never reads a file. ``refresh`` reads files outside of the event loop, and
replaces the known content in one assignment. If a file becomes unreadable, its last content stays.
Conditions on a file that was never read are unknown.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

from walle_deploy.policy.compact import CompactIds
from walle_stream.errors import SpecFileError

type Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, time and size of each file, which reveal a change."""

_log = logging.getLogger(__name__)

_UNREAD: Final = (OSError, UnicodeError, SpecFileError)
_IDS_MAX: Final = 20_000_000
_LINE_MAX: Final = 1_024
_MARK: Final = "\ufeff"  # byte-order mark, with which some editors begin a file


class WatchedFile[T]:
    """The content of a file at its last reading."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        """Start without reading; ``read`` may block, and raises SpecFileError or OSError."""
        self.path = path
        self.known: T | None = None
        """None before the first reading."""
        self.problem = ""
        """Reason why the last reading failed; empty if it succeeded."""
        self._read = read
        self._stamp: Stamp | None = None

    @classmethod
    def opened(cls, path: Path, read: Callable[[Path], T]) -> Self:
        """Return a watched file that was read, for files that must be readable; blocks.

        Raises:
            SpecFileError: The file cannot be read.
        """
        watched = cls(path, read)
        stamp = watched._look()
        try:
            watched.known, watched._stamp = watched._known(), stamp
        except _UNREAD as error:
            raise SpecFileError(watched._why(error), str(path)) from error
        return watched

    def refresh(self) -> bool:
        """Read the file if it changed, and return whether the content changed; blocks."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        try:
            known = self._known()
        except _UNREAD as error:
            problem = self._why(error)
            if problem != self.problem:
                _log.warning("%s; the previous content stays in use", problem)
            self.problem = problem
            return False
        # the stamp is from before the reading, so the next call sees a change during the reading
        self.known, self.problem, self._stamp = known, "", stamp
        return True

    def _known(self) -> T:
        # reading a pipe or a device may never end
        if self.path.exists() and not self.path.is_file():
            raise SpecFileError("is not a file")
        return self._read(self.path)

    def _why(self, error: Exception) -> str:
        text = getattr(error, "strerror", None) or str(error)
        return text if text.startswith(str(self.path)) else f"{self.path}: {text}"

    def _look(self) -> Stamp:
        # a database in WAL mode changes its -wal file first
        beside = self.path.with_name(self.path.name + "-wal")
        return _stamp_of(self.path), _stamp_of(beside)


def read_ids(path: Path) -> CompactIds:
    """Read a file of ids: UTF-8 text, an id per line; empty lines and ``#...`` are ignored.

    Raises:
        SpecFileError: The file has more than 20 million ids, or a line longer than any id.
        OSError: The file cannot be read.
    """
    return CompactIds(_ids_of(path))


def read_secrets(path: Path) -> frozenset[str]:
    """Read a file of few secrets; see ``read_ids``.

    Raises:
        SpecFileError: A line is too long.
        OSError: The file cannot be read.
    """
    return frozenset(_ids_of(path))


def read_revoked(path: Path) -> frozenset[str]:
    """Read a file of revoked ids: UTF-8 text, an id per line, without comments.

    Any line may be an id, so none is ignored. Each counts as written, and also without outer spaces
    or a byte-order mark, which are invisible.

    Raises:
        SpecFileError: A line is longer than any id.
        OSError: The file cannot be read.
    """
    lines = {line.removesuffix("\n") for _, line in _lines_of(path)}
    lines |= {line.removeprefix(_MARK) for line in lines}
    return frozenset(lines | {line.strip() for line in lines}) - {""}


def _ids_of(path: Path) -> Iterator[str]:
    count = 0
    for number, line in _lines_of(path):
        text = line.removeprefix(_MARK).strip()
        if not text or text.startswith("#"):
            continue
        count += 1
        if count > _IDS_MAX:
            raise SpecFileError(f"{path}:{number}:1: more than {_IDS_MAX:,} ids", str(path))
        yield text


def _lines_of(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if len(line) > _LINE_MAX:
                raise SpecFileError(f"{path}:{number}:1: longer than any id", str(path), number, 1)
            yield number, line


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
