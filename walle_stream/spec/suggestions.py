"""Suggestions for a wrong name: the nearest known name, or the allowed names."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

_NAME_MAX: Final = 100
_NAMES_MAX: Final = 20
_SHOWN_MAX: Final = 10


def suggest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message: ``, did you mean 'x'?``, the allowed names, or nothing."""
    names = sorted(set(known))
    close = nearest(name, names)
    if close is not None:
        return f", did you mean {close!r}?"
    if not names:
        return ""
    more = ", ..." if len(names) > _NAMES_MAX else ""
    return f": allowed are {', '.join(names[:_NAMES_MAX])}{more}"


def instead(name: str, known: Sequence[str]) -> str:
    """Return the end of a message: the nearest name, or the last ten of the known names."""
    close = nearest(name, known)
    if close is not None:
        return f", did you mean {close!r}?"
    if not known:
        return ": there is none at all"
    shown = ", ".join(known[-_SHOWN_MAX:])
    is_all = len(known) <= _SHOWN_MAX
    return f"; there are: {shown}" if is_all else f"; the last of {len(known)} are: {shown}"


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the nearest known name; None when no similarity, from 0 to 1, reaches ``cutoff``."""
    if len(name) > _NAME_MAX:
        return None
    # a user of another convention may write page_timeout for pageTimeout
    by_spelling = {name.lower().replace("_", "").replace("-", ""): name for name in sorted(known)}
    spelling = name.lower().replace("_", "").replace("-", "")
    close = get_close_matches(spelling, by_spelling, 1, cutoff)
    return by_spelling[close[0]] if close else None
