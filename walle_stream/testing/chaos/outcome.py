"""Comparison of the results of a killed pipeline with those of an unkilled one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

_SHOWN: Final = 160


def difference(
    found: Mapping[str, Sequence[bytes]], wanted: Mapping[str, Sequence[bytes]]
) -> str | None:
    """Describe the difference of two outcomes in one line.

    Args:
        found: Lines by name.
        wanted: Lines by name of the unkilled run.

    Returns:
        Counts of missing, doubled and foreign lines, and the first line that differs; None if all
        bytes are equal.
    """
    for name in sorted({*found, *wanted}):
        mine, other = found.get(name, ()), wanted.get(name, ())
        if list(mine) != list(other):
            return f"{name}: {_counts(mine, other)}; {_first(mine, other)}"
    return None


def _counts(found: Sequence[bytes], wanted: Sequence[bytes]) -> str:
    mine, other = Counter(found), Counter(wanted)
    missing, more = (other - mine).total(), mine - other
    doubled = sum(count for line, count in more.items() if line in other)
    return (
        f"{missing} of {len(wanted)} lines missing, {doubled} doubled, "
        f"{more.total() - doubled} others"
    )


def _first(found: Sequence[bytes], wanted: Sequence[bytes]) -> str:
    for number, (mine, other) in enumerate(zip(found, wanted, strict=False), 1):
        if mine != other:
            return f"line {number} is {_shown(mine)} instead of {_shown(other)}"
    number = min(len(found), len(wanted))
    which, lines = ("missing", wanted) if len(wanted) > number else ("too much", found)
    return f"line {number + 1} is {which}: {_shown(lines[number])}"


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace")
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
