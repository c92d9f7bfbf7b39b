"""The rows of an open page on their way into VMs: packed once each, however often they are seen.

A run of an open page sees its rows up to the event that woke it. The page goes on, and wakes
further runs; each gets the same bytes and a length. So a wake costs the rows that came since
the last one, and what the script looks at.
"""

import marshal
from array import array
from collections.abc import Sequence
from typing import Any, Final

# no references between values: a prefix of the rows is readable by itself
_VERSION: Final = 2


class PageRows:
    """Append-only rows of one page. One thread."""

    __slots__ = ("_ends", "_packed", "head", "rows")

    def __init__(self, head: tuple[Any, ...], rows: list[Any]) -> None:
        """Pack nothing yet.

        ``head`` has what a run sees of the page beside its rows, plain values. ``rows`` is the
        page's own list: it may grow, what is in it never changes.
        """
        self.head = head
        self.rows = rows
        self._packed = bytearray()
        self._ends = array("Q")

    def place(self, count: int) -> tuple[int, int, int]:
        """Pack what is not packed yet of the first rows; tell where the last one lies.

        Returns (count, where the last row begins, where it ends), in ``packed``.

        Raises:
            ValueError: A value is not plain, or nested too deep.
        """
        ends, packed = self._ends, self._packed
        for index in range(len(ends), count):
            packed += marshal.dumps(self.rows[index], _VERSION)
            ends.append(len(packed))
        return count, ends[count - 2] if count > 1 else 0, ends[count - 1]

    def packed(self, end: int) -> bytes:
        """Return the packed rows up to an end that ``place`` returned; copies them."""
        return bytes(memoryview(self._packed)[:end])


def with_packed_rows(
    groups: Sequence[tuple[str, Any, Sequence[tuple[int, int, Any]]]],
) -> Sequence[tuple[str, Any, Sequence[tuple[int, int, Any]]]]:
    """Return a call's groups with the rows of open pages packed, each page once.

    Args:
        groups: As a VM's caller hands them over: an open page is ``PageRows`` and how many
            of them a run sees.

    Returns:
        The same object where no page is open. Else open pages are (what their head has,
        the place of the waking row, bytes, the same for all runs of a page).

    Raises:
        ValueError: As ``PageRows.place``.
    """
    for _, _, runs in groups:
        for _, _, page in runs:
            if _is_open(page):
                return [(*group[:2], _packed_runs(group[2])) for group in groups]
    return groups


def _is_open(page: Any) -> bool:
    return bool(page) and page[0].__class__ is PageRows


def _packed_runs(runs: Sequence[tuple[int, int, Any]]) -> list[tuple[int, int, Any]]:
    most: dict[PageRows, int] = {}
    for _, _, page in runs:
        if _is_open(page):
            most[page[0]] = max(page[1], most.get(page[0], 0))
    packed = {rows: rows.packed(rows.place(count)[2]) for rows, count in most.items()}
    return [
        (position, clock_ms, (*page[0].head, page[0].place(page[1]), packed[page[0]]))
        if _is_open(page)
        else (position, clock_ms, page)
        for position, clock_ms, page in runs
    ]
