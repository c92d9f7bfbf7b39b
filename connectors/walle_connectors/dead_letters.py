"""Dead letters of records, for all connectors."""

from hashlib import blake2b
from typing import Final

from walle_stream.ports import RECORD_MAX_BYTES, DeadLetter, DeadLetterRoute

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
    """Describe a record that could not be processed.

    Args:
        text: The record, or its beginning.
        route: Why it left the main path.
        reason: One line for a person.
        origin: Where it came from.
        device_id: Whose it is, when that is known.
        error: Class of the exception, when there was one.
        size_bytes: Of the whole record, where ``text`` is its beginning.
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
