"""Versions of apps and systems: their order, and ranges such as ``>=7.1 <8``.

The order is that of Semantic Versioning 2.0, but with any number of numeric parts, because apps and
systems have two to four. Parts are compared as numbers, and missing parts are 0 (``7.1`` equals
``7.1.0``). A pre-release is below its release (``8.0.0-beta`` is below ``8``). Build metadata after
``+`` and a leading ``v`` do not count.
"""

import operator
import re
from collections.abc import Callable
from typing import Any, Final

from walle_stream.spec.scalars import parse_size_bytes

type VersionKey = tuple[tuple[int, ...], tuple[Any, ...]]
"""Sort key of a version."""

_VERSION: Final = re.compile(
    r"v?(?P<numbers>[0-9]{1,18}(?:\.[0-9]{1,18}){0,7})"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)
_TERM: Final = re.compile(r"(>=|<=|!=|==|=|>|<)?\s*([^\s<>=!,]+)")
_SIZE_TERM: Final = re.compile(r"(>=|<=|>|<|=)\s*([0-9.]+ *[KMG]?i?B?)")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "!=": operator.ne,
    "=": operator.eq,
    "==": operator.eq,
    "": operator.eq,
}


def try_version(text: str) -> VersionKey | None:
    """Return the sort key of a version, or None if the text is not a version."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    numbers = [int(part) for part in match["numbers"].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    pre = match["pre"]
    if pre is None:
        return tuple(numbers), (1,)  # above its pre-releases
    parts = tuple(
        (0, int(part), "") if part.isdecimal() else (1, 0, part) for part in pre.split(".")
    )
    return tuple(numbers), (0, parts)


def parse_version_range(text: str) -> Callable[[VersionKey], bool]:
    """Return a test of comparisons that must all hold, such as ``>=7.1 <8``.

    A bare version means ``=``.

    Raises:
        ValueError: The text is not a range.
    """
    terms = []
    for sign, version in _terms(_TERM, text, "a range of versions like '>=7.1 <8'"):
        key = try_version(version)
        if key is None:
            raise ValueError(f"expected a version like 7.1.0, found {version!r}")
        terms.append((_OPERATORS[sign], key))
    return lambda version: all(holds(version, key) for holds, key in terms)


def parse_memory_range(text: str) -> Callable[[int], bool]:
    """Return a test of MiB by comparisons that must all hold, such as ``>=2GiB <4GiB``.

    Raises:
        ValueError: The text is not a range.
    """
    terms = [
        (_OPERATORS[sign], parse_size_bytes(size.strip()))
        for sign, size in _terms(_SIZE_TERM, text, "a range of sizes like '>= 4GiB'")
    ]
    return lambda memory_mb: all(holds(memory_mb * 2**20, size) for holds, size in terms)


def _terms(pattern: re.Pattern[str], text: str, expected: str) -> list[tuple[str, str]]:
    terms = [(match[1] or "", match[2]) for match in pattern.finditer(text)]
    if not terms or pattern.sub("", text).strip(" ,"):
        raise ValueError(f"expected {expected}, found {text[:60]!r}")
    return terms
