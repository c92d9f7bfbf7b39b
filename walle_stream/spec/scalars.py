"""Durations and sizes as people write them."""

import re
from typing import Annotated, Final

from pydantic import BeforeValidator

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KB|MB|GB|KiB|MiB|GiB)?")
_SIZE_BYTES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_MAX_MS: Final = 3_650 * 86_400_000


def parse_duration_ms(text: object) -> int:
    """Parse ``250ms``, ``10s``, ``30m``, ``1.5h``, ``2d``.

    Args:
        text: As in YAML.

    Returns:
        Milliseconds, rounded to whole ones.

    Raises:
        ValueError: It is no duration, or longer than ten years.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"expected a duration like 250ms, 10s, 30m, 1.5h or 2d, found {text!r}")
    milliseconds = round(float(match[1]) * _DURATION_MS[match[2]])
    if milliseconds > _MAX_MS:
        raise ValueError(f"the duration {text!r} is longer than ten years")
    return milliseconds


def parse_duration_or_never(text: object) -> int | None:
    """Parse a duration, or ``never`` as None.

    Args:
        text: As in YAML.
    """
    return None if text in {"never", None} else parse_duration_ms(text)


def parse_size_bytes(value: object) -> int:
    """Parse ``64MiB``, ``1MB``, ``512KiB`` or a plain number of bytes.

    Args:
        value: As in YAML.

    Raises:
        ValueError: It is no size.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"expected a size like 64MiB, 1MB or 4096, found {value!r}")
    return round(float(match[1]) * _SIZE_BYTES[match[2] or "B"])


DurationMs = Annotated[int, BeforeValidator(parse_duration_ms)]
"""A duration in YAML, milliseconds in Python."""

DurationMsOrNever = Annotated[int | None, BeforeValidator(parse_duration_or_never)]
"""A duration or ``never`` in YAML, milliseconds or None in Python."""

SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes)]
"""A size in YAML, bytes in Python."""
