"""The bearer token of a request, from a file or the environment (RFC 6750).

Another program makes tokens, and replaces them before they expire. So the file is read again when
it changes.
"""

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from walle_stream.errors import SpecFileError

TOKEN_VARIABLE: Final = "WALLE_TOKEN"  # noqa: S105 - a name
"""Environment variable of the token, used without a file."""

TOKEN_HEADER: Final = "walle-token"  # noqa: S105 - a name
"""Header in which a release service always finds a token."""

_MAX_BYTES: Final = 8_192
_log = logging.getLogger(__name__)


class TokenFile:
    """The token of a file, for any thread."""

    def __init__(self, path: Path) -> None:
        """Read a file that holds the token and nothing else; blocks.

        Raises:
            SpecFileError: The file cannot be read, or holds no token.
        """
        self._path = path
        self._stamp = self._look()
        self._token = self._read()

    def __call__(self) -> str:
        """Return the token; blocks if the file has changed.

        An unreadable file, or one without a token, keeps the previous token.
        """
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._token = self._read()
            except SpecFileError as error:
                _log.warning("%s; the previous token stays in use", error)
        return self._token

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                return _checked(file.read(_MAX_BYTES + 1), str(self._path))
        except OSError as error:
            raise SpecFileError(
                f"{self._path}: cannot be read: {error.strerror}", str(self._path)
            ) from error


def token_from(
    file: Path | None, environ: Mapping[str, str] = os.environ
) -> Callable[[], str] | None:
    """Return a function that gives the token for each request; None without a token.

    Without a file, the environment variable ``TOKEN_VARIABLE`` may have it.

    Raises:
        SpecFileError: The file or variable holds no token.
    """
    if file is not None:
        return TokenFile(file)
    text = environ.get(TOKEN_VARIABLE, "")
    if not text:
        return None
    token = _checked(text.encode("utf-8", "surrogateescape"), TOKEN_VARIABLE)
    return lambda: token


def bearer_headers(token: Callable[[], str] | None) -> dict[str, str]:
    """Return the headers that carry a token; empty without a token.

    Two headers carry the same token, because a proxy, or the application around a service, may
    need one of them for itself.
    """
    if token is None:
        return {}
    text = token()
    return {"authorization": f"Bearer {text}", TOKEN_HEADER: text}


def _checked(data: bytes, place: str) -> str:
    text = data.strip()
    is_plain = text.isascii() and text.decode("ascii", "replace").isprintable() and b" " not in text
    if not text or len(data) > _MAX_BYTES or not is_plain:
        raise SpecFileError(
            f"{place}: holds no token: expected one line of at most {_MAX_BYTES} printable "
            "characters",
            place,
        )
    return text.decode("ascii")
