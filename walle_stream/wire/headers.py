"""Common part of all records in a broker's topics: a device as key, and headers as text.

``wire.record`` (up) and ``wire.message`` (down) define the headers.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from walle_stream.errors import EnvelopeError
from walle_stream.types import device_id_problem

type Headers = list[tuple[str, bytes]]
"""Headers in the form of Kafka's clients."""

_INCARNATION: Final = re.compile("[0-9a-f]{16}")
_DIGITS_MAX: Final = 19
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class FoundHeaders:
    """Untrusted headers of one record."""

    def __init__(self, what: str, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """Keep the headers of the record ``what``; the last header of a name counts."""
        self._what = what
        self.found = dict(headers)

    def get(self, name: str) -> bytes:
        """Return the bytes of a header, empty if it is missing."""
        return self.found.get(name) or b""

    def text(self, name: str, default: str | None = None) -> str:
        """Return a header as text, or the default if it is missing.

        Raises:
            EnvelopeError: The header is missing without a default, or is not text.
        """
        value = self.found.get(name)
        if value is None:
            if default is None:
                raise EnvelopeError(f"a {self._what} lacks the header {name!r}")
            return default
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise EnvelopeError(f"a {self._what}'s header {name!r} is no text: {error}") from error

    def incarnation(self, name: str) -> str:
        """Return a header as an incarnation, 16 hexadecimal digits.

        Raises:
            EnvelopeError: The header is missing, or is not an incarnation.
        """
        text = self.text(name)
        if _INCARNATION.fullmatch(text) is None:
            raise EnvelopeError(
                f"a {self._what}'s header {name!r} is not 16 hexadecimal digits: {text[:40]!r}"
            )
        return text

    def number(self, name: str, *, is_signed: bool = True, at_most: int = _INT64_MAX) -> int:
        """Return a header as an integer of 64 bits, ≥ 0 if it is not signed.

        Raises:
            EnvelopeError: The header is missing, or is not such a number.
        """
        value = self.found.get(name)
        if value and value.isdigit() and len(value) < _DIGITS_MAX:
            number = int(value)  # the fast way, because every record needs it
            if number <= at_most:
                return number
        text = self.text(name)
        digits = text.removeprefix("-") if is_signed else text
        if (
            not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS_MAX)
            or not _INT64_MIN <= int(text) <= at_most
        ):
            raise EnvelopeError(f"a {self._what}'s header {name!r} is no number: {text[:40]!r}")
        return int(text)


def read_headers(
    what: str,
    version: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    *,
    has_device: bool = True,
) -> tuple[str, bytes, FoundHeaders]:
    """Check the common part of an untrusted record; ``version`` is the version of this side.

    Without ``has_device`` the key may be empty. Returns the device, the value and the headers.

    Raises:
        EnvelopeError: The record is of another version, a part is missing or not text, or the key
            cannot be a device id.
    """
    texts = FoundHeaders(what, headers)
    stated = texts.get("v")
    if stated != b"%d" % version:
        raise EnvelopeError(
            f"a {what} has envelope version {(stated or b'none').decode(errors='replace')}, this "
            f"side reads {version}: use the version of walle_stream that wrote it"
        )
    if key is None or value is None:
        raise EnvelopeError(f"a {what} has no {'key' if key is None else 'value'}")
    try:
        device_id = _device_of(key) if has_device else key.decode()
    except ValueError as error:
        raise EnvelopeError(f"a {what}'s key is no device: {error}") from error
    return device_id, value, texts


@lru_cache(16_384)  # every record needs it
def _device_of(key: bytes) -> str:
    # the device id becomes a key of tables, and a path of look-ups
    device_id = key.decode()
    problem = device_id_problem(device_id)
    if problem:
        raise ValueError(problem)
    return device_id
