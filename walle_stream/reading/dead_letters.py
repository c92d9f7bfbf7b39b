"""Dead letters of records, and errors in the JSON of an event."""

from hashlib import blake2b
from typing import Final

import msgspec

from walle_stream.ports import RECORD_MAX_BYTES, DeadLetter, DeadLetterRoute
from walle_stream.types import TIME_MAX_MS

# RecursionError means deeper nesting than the decoder allows
DECODE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of decoding foreign JSON."""

BAD_TIME: Final = f"a time is outside 0 .. {TIME_MAX_MS} milliseconds"
"""Reason for refusing an event with an impossible time."""

_BOUNDS: Final = ("`int` >= ", "`int` <= ")  # parts of the decoder's message about a time

_RAW_CHARACTERS: Final = 1_024
_DIGEST_BYTES: Final = 16


def record_dead_letter(
    text: bytes,
    *,
    route: DeadLetterRoute,
    reason: str,
    origin: str,
    device_id: str = "",
    error: str = "",
    size_bytes: int | None = None,
) -> DeadLetter:
    """Describe a record that could not be processed; ``text`` is the record or its beginning.

    ``origin`` is its place in the source, ``error`` the class of the exception, if any, and
    ``size_bytes`` the size of the whole record.
    """
    raw = text[: 4 * _RAW_CHARACTERS].decode(errors="replace").rstrip("\r\n")
    return DeadLetter(
        route=route,
        reason=reason,
        origin=origin,
        device_id=device_id,
        error=error,
        raw=raw[:_RAW_CHARACTERS],
        digest=text_digest(text),
        size_bytes=len(text) if size_bytes is None else size_bytes,
        record=text[:RECORD_MAX_BYTES],
    )


def text_digest(text: bytes) -> str:
    """Return the blake2b-128 of a record, hexadecimal."""
    return blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()


def decode_problem(error: Exception) -> tuple[DeadLetterRoute, str, str]:
    """Return route, reason and class of one of ``DECODE_ERRORS``.

    The class is empty if the reason says everything.
    """
    if any(words in str(error) for words in _BOUNDS):
        return "invalid", BAD_TIME, ""
    return "decode", f"is no event: {error}", type(error).__name__
