"""Files that policies look into: read whole, and again when they change.

Invariants: a question never reads a file; ``refresh`` does, outside of the event loop, and
changes what is known in one assignment. A file that cannot be read any more leaves what was
known of it; one that could never be read makes its conditions unknown.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Self

from walle_deploy.policy.compact import CompactIds
from walle_stream.errors import SpecFileError

type Stamp = tuple[tuple[int, int, int] | None, ...]
"""What a change of files is noticed by: inode, time and size of each."""

_log = logging.getLogger(__name__)

_UNREAD: Final = (OSError, UnicodeError, SpecFileError)
_IDS_MAX: Final = 20_000_000
_LINE_MAX: Final = 1_024


class WatchedFile[T]:
    """What a file holds, as of its last reading."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        """Read nothing yet; ``read`` may block, and raises SpecFileError or OSError."""
        self.path = path
        self.known: T | None = None
        """None before it was read."""
        self.problem = ""
        """Why the last reading failed; empty when it did not."""
        self._read = read
        self._stamp: Stamp | None = None

    @classmethod
    def opened(cls, path: Path, read: Callable[[Path], T]) -> Self:
        """Return one that was read, for files that nothing goes without; blocks.

        Raises:
            SpecFileError: It cannot be read.
        """
        watched = cls(path, read)
        stamp = watched._look()
        try:
            watched.known, watched._stamp = watched._known(), stamp
        except _UNREAD as error:
            raise SpecFileError(watched._why(error), str(path)) from error
        return watched

    def refresh(self) -> bool:
        """Read the file if it has changed; return whether something else is known now. Blocks."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        try:
            known = self._known()
        except _UNREAD as error:
            problem = self._why(error)
            if problem != self.problem:
                _log.warning("%s; what was known before stays", problem)
            self.problem = problem
            return False
        # the stamp is older than what was read: a change meanwhile is seen the next time
        self.known, self.problem, self._stamp = known, "", stamp
        return True

    def _known(self) -> T:
        # a pipe or a device may never end
        if self.path.exists() and not self.path.is_file():
            raise SpecFileError("is no file")
        return self._read(self.path)

    def _why(self, error: Exception) -> str:
        text = getattr(error, "strerror", None) or str(error)
        return text if text.startswith(str(self.path)) else f"{self.path}: {text}"

    def _look(self) -> Stamp:
        # a database in WAL mode changes the file beside it first
        beside = self.path.with_name(self.path.name + "-wal")
        return _stamp_of(self.path), _stamp_of(beside)


def read_ids(path: Path) -> CompactIds:
    """Read a file of ids: UTF-8 text, an id per line; empty lines and ``#...`` are passed over.

    Raises:
        SpecFileError: More than 20 million ids, or a line that is longer than any id.
        OSError: It cannot be read.
    """
    with path.open(encoding="utf-8") as lines:
        return CompactIds(_ids_of(path, lines))


def read_lines(path: Path) -> frozenset[str]:
    """Read a file of few ids, names or secrets; see ``read_ids``.

    Raises:
        SpecFileError: A line is too long.
        OSError: It cannot be read.
    """
    with path.open(encoding="utf-8") as lines:
        return frozenset(_ids_of(path, lines))


def _ids_of(path: Path, lines: Iterator[str]) -> Iterator[str]:
    count = 0
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if len(line) > _LINE_MAX:
            raise SpecFileError(f"{path}:{number}:1: longer than any id", str(path), number, 1)
        if not text or text.startswith("#"):
            continue
        count += 1
        if count > _IDS_MAX:
            raise SpecFileError(f"{path}:{number}:1: more than {_IDS_MAX:,} ids", str(path))
        yield text


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
