"""A partition's position in a file of rows.

The source's *steps* are its rows in file order and its ends, numbered from 1. An end after N rows
takes the number after row N; if the file grew afterwards, its rows continue after that number. Each
step releases events, in an order that depends on the file alone. A partition's position has two
parts: the number of events released to it and given to the host, and the last step whose counts and
dead letters are accounted for. The events of earlier steps are among the given ones.
"""

from collections.abc import Mapping
from typing import ClassVar, override

from walle_stream.errors import SourceError
from walle_stream.reading.offsets import Count, Position


class FilePosition(Position, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Position of a partition."""

    what: ClassVar[str] = "a file source"
    order = ("step",)

    step: Count = 0
    """The last step that is accounted for, 0 before the first."""
    events: Count = 0
    """Total number of events given."""
    ends: tuple[Count, ...] = ()
    """Row counts at earlier ends of the source, ascending."""
    digest: int | None = None
    """CRC-32 of the rows up to the step; a file that differs there is another file."""

    @override
    @property
    def rows(self) -> int:
        """Rows among the accounted steps."""
        passed = sum(rows + place < self.step for place, rows in enumerate(self.ends))
        return self.step - passed


class Replayed:
    """Facts about the file in the partitions' positions: its ends and digests."""

    def __init__(self, positions: Mapping[int, FilePosition]) -> None:
        """Combine the positions.

        Raises:
            SourceError: Two partitions contradict each other.
        """
        self.ends = sorted({rows for each in positions.values() for rows in each.ends})
        """Ends that any partition has seen, ascending."""
        self.digests: dict[int, int] = {}
        """CRC-32 of the rows up to each step of a partition's position."""
        self.step = max(each.step for each in positions.values())
        for partition, each in positions.items():
            count, digest = len(each.ends), each.digest
            # an unknown end below a position would have shifted its steps
            is_strange = each.ends != tuple(self.ends[:count]) or any(
                rows + place < each.step for place, rows in enumerate(self.ends[count:], count)
            )
            if digest is not None and self.digests.setdefault(each.step, digest) != digest:
                is_strange = True
            if is_strange:
                raise SourceError(
                    f"the offset of partition {partition} is not of the same source as the others: "
                    "restore the data directory from a copy, or start with a new one"
                )
