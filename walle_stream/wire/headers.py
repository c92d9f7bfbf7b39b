"""What all records of a broker's topics have in common: a device as key, headers as text.

``wire.record`` (up) and ``wire.message`` (down) say which headers there are.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from walle_stream.errors import EnvelopeError
from walle_stream.types import device_id_problem

type Headers = list[tuple[str, bytes]]
"""As clients of Kafka take them."""

_INCARNATION: Final = re.compile("[0-9a-f]{16}")
_DIGITS_MAX: Final = 19
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class FoundHeaders:
    """Headers of one record; not trusted."""

    def __init__(self, what: str, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """Keep those of the record ``what``; of one name the last counts."""
        self._what = what
        self.found = dict(headers)

    def get(self, name: str) -> bytes:
        """Return a header as it is, empty where there is none."""
        return self.found.get(name) or b""

    def text(self, name: str, default: str | None = None) -> str:
        """Return a header as text, the default where there is none.

        Raises:
            EnvelopeError: It is missing, or no text.
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
            EnvelopeError: It is missing, or none.
        """
        text = self.text(name)
        if _INCARNATION.fullmatch(text) is None:
            raise EnvelopeError(
                f"a {self._what}'s header {name!r} is not 16 hexadecimal digits: {text[:40]!r}"
            )
        return text

    def number(self, name: str, *, is_signed: bool = True, at_most: int = _INT64_MAX) -> int:
        """Return a header as an integer of 64 bits, not below 0 if it is not signed.

        Raises:
            EnvelopeError: It is missing, or no such number.
        """
        value = self.found.get(name)
        if value and value.isdigit() and len(value) < _DIGITS_MAX:
            number = int(value)  # asked for every record
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
    """Check what every record, not trusted, must have; ``version`` is the one this side reads.

    Without ``has_device`` the key may be empty. Returns the device, the value, and the headers to
    read on.

    Raises:
        EnvelopeError: It is of another version, something is missing or no text, or the key
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


@lru_cache(16_384)  # it is asked for every record
def _device_of(key: bytes) -> str:
    # it becomes a key of tables, and a path of look-ups
    device_id = key.decode()
    problem = device_id_problem(device_id)
    if problem:
        raise ValueError(problem)
    return device_id
