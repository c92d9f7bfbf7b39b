"""The rows of an open page on their way into VMs, each packed only once.

A run of an open page sees its rows up to the event that woke it. The page continues, and wakes
further runs. Each run gets the same bytes and a length. So a wake costs only the rows since the
last wake, and the rows that the script reads.
"""

import marshal
from array import array
from collections.abc import Sequence
from typing import Any, Final

# version 2 has no references between values, so a prefix of the rows is readable by itself
_VERSION: Final = 2


class PageRows:
    """Append-only rows of one page, for one thread."""

    __slots__ = ("_ends", "_packed", "head", "rows")

    def __init__(self, head: tuple[Any, ...], rows: list[Any]) -> None:
        """Pack nothing yet.

        ``head`` has plain values: all that a run sees of the page besides its rows. ``rows`` is the
        page's own list, which may grow, but its rows never change.
        """
        self.head = head
        self.rows = rows
        self._packed = bytearray()
        self._ends = array("Q")

    def place(self, count: int) -> tuple[int, int, int]:
        """Pack the first ``count`` rows, as far as needed, and return the place of the last one.

        Returns (count, start of the last row, its end), as offsets in ``packed``.

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
        groups: The groups of a VM's caller; an open page is ``PageRows`` and the number of
            rows that a run sees.

    Returns:
        The same object if no page is open. Else an open page is (values of its head,
        place of the waking row, bytes); all runs of a page share the bytes.

    Raises:
        ValueError: As for ``PageRows.place``.
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
