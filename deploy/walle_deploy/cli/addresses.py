"""Addresses on the command line: refused at the start, not by each request."""

from typing import Final
from urllib.parse import urlsplit

from walle_stream.errors import SpecFileError

_LENGTH_MAX: Final = 2_048


def need_url(option: str, text: str, *, has_path: bool) -> None:
    """Refuse what is no address of a server.

    Args:
        option: Its name, such as ``--files``.
        text: As it was given.
        has_path: Whether it may go on behind host and port.

    Raises:
        SpecFileError: It is none.
    """
    if _is_url(text, has_path=has_path):
        return
    wanted = "https://HOST[:PORT]/ and maybe a path" if has_path else "http://HOST:PORT, no path"
    raise SpecFileError(f"{option} {text[:200]!r}: is no address of a server: expected {wanted}")


def _is_url(text: str, *, has_path: bool) -> bool:
    if len(text) > _LENGTH_MAX or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises where it is none
    except ValueError:
        return False
    is_bare = not (parts.query or parts.fragment or parts.username)
    is_server = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_server and is_bare and (has_path or parts.path in {"", "/"})
