"""Durations and sizes as people write them.

Parsing is exact: it uses integers, never floating point. Place in the data flow:
the leaves of ``models`` and of the connectors' models.
"""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, WithJsonSchema

from walle_stream.spec.document import shown

# bounded, so that no text gives a number that is expensive to handle
_NUMBER: Final = r"([0-9]{1,18})(?:\.([0-9]{1,9}))?"
_DURATION: Final = re.compile(_NUMBER + r"(ms|s|m|h|d)")
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(_NUMBER + r" *(B|KB|MB|GB|KiB|MiB|GiB)?")
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
_MAX_BYTES: Final = 2**63 - 1
DURATION_PATTERN: Final = r"^[0-9]{1,18}(\.[0-9]{1,9})?(ms|s|m|h|d)$"
"""Pattern of durations in the JSON Schema."""

_DURATION_SCHEMA: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": DURATION_PATTERN,
    "examples": ["250ms", "10s", "30m", "1.5h", "2d"],
}


def parse_duration_ms(text: object) -> int:
    """Parse ``250ms``, ``10s``, ``30m``, ``1.5h``, ``2d`` to whole milliseconds, halves up.

    Raises:
        ValueError: The text is not a duration, or is longer than ten years.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f"expected a duration like 250ms, 10s, 30m, 1.5h or 2d, found {shown(text)}"
        )
    milliseconds = _scaled(match[1], match[2], _DURATION_MS[match[3]])
    if milliseconds > _MAX_MS:
        raise ValueError(f"the duration {text!r} is longer than ten years")
    return milliseconds


def parse_duration_or_never(text: object) -> int | None:
    """Parse a duration, or ``never`` as None.

    Raises:
        ValueError: The text is neither, or is longer than ten years.
    """
    if text == "never":
        return None
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise ValueError(str(error).replace("1.5h or 2d", "1.5h, 2d or 'never'")) from None


def format_duration(milliseconds: int) -> str:
    """Return the shortest text that parses to these milliseconds."""
    for unit, factor in reversed(_DURATION_MS.items()):
        if milliseconds and milliseconds % factor == 0:
            return f"{milliseconds // factor}{unit}"
    return "0s"


def parse_size_bytes(value: object) -> int:
    """Parse ``64MiB``, ``1MB``, ``512KiB`` or a plain number to whole bytes, halves up.

    Raises:
        ValueError: The value is not a size, or is over 63 bits.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        size = value
    else:
        match = _SIZE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"expected a size like 64MiB, 1MB or 4096, found {shown(value)}")
        size = _scaled(match[1], match[2], _SIZE_BYTES[match[3] or "B"])
    if size > _MAX_BYTES:
        raise ValueError(f"the size {shown(value)} is over {_MAX_BYTES} bytes")
    return size


def _scaled(whole: str, fraction: str | None, factor: int) -> int:
    digits = fraction or ""
    scale: int = 10 ** len(digits)
    return (int(whole + digits) * factor * 2 + scale) // (2 * scale)


DurationMs = Annotated[
    int, BeforeValidator(parse_duration_ms), WithJsonSchema(_DURATION_SCHEMA, mode="validation")
]
"""A duration in YAML, milliseconds in Python."""

DurationMsOrNever = Annotated[
    int | None,
    BeforeValidator(parse_duration_or_never),
    WithJsonSchema({"anyOf": [_DURATION_SCHEMA, {"const": "never"}]}, mode="validation"),
]
"""A duration or ``never`` in YAML, milliseconds or None in Python."""

SizeBytes = Annotated[
    int,
    BeforeValidator(parse_size_bytes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{1,9})? *([KMG]i?B|B)?$"},
            ],
            "examples": ["64MiB", "1MB", 4096],
        },
        mode="validation",
    ),
]
"""A size in YAML, bytes in Python."""
