"""Checks of server addresses in set-ups and on command lines."""

from typing import Final
from urllib.parse import urlsplit

_LENGTH_MAX: Final = 2_048


def is_url(text: str, *, has_path: bool = True, is_bare: bool = True) -> bool:
    """Return whether a text can be the address of a server over HTTP.

    With ``has_path``, a path may follow host and port. With ``is_bare``, the address has no user,
    query or fragment, because others are relative to it.
    """
    if len(text) > _LENGTH_MAX or not text.isprintable() or " " in text:
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises if the port is not valid
    except ValueError:
        return False
    if is_bare and (parts.query or parts.fragment or parts.username):
        return False
    is_server = parts.scheme in {"http", "https"} and bool(parts.hostname)
    return is_server and (has_path or parts.path in {"", "/"})


def checked_url(text: str, *, is_bare: bool = True) -> str:
    """Return a valid address of a server unchanged, for fields of a set-up.

    Raises:
        ValueError: The text is not such an address.
    """
    if not is_url(text, is_bare=is_bare):
        raise ValueError("expected https://HOST[:PORT]/ and maybe a path")
    return text
