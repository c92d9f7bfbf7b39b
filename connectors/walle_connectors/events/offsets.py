"""A partition's position in a file of events: between two rows, with a check of the last row."""

from typing import ClassVar, override

from walle_stream.reading.offsets import Count, Position


class LinePosition(Position, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in a file of lines."""

    what: ClassVar[str] = "a file of events"
    order: ClassVar[tuple[str, ...]] = ("at",)

    at: Count = 0
    """Bytes of the decompressed file that are accounted for. The position is after a line's end,
    which the file's last line may lack."""
    line: Count = 0
    """Number of lines up to there."""
    tail: tuple[Count, Count] = (0, 0)
    """Length and CRC-32 of the last of these lines without its end; a file that differs there is
    another file."""

    @override
    @property
    def rows(self) -> int:
        """Rows up to here."""
        return self.line


class PackedPosition(LinePosition, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in a file of blocks.

    ``at`` is the start of the next block to read, ``line`` counts records, ``tail`` is length and
    CRC-32 of the bytes from ``begin`` on.
    """

    order = ("at", "index")

    index: Count
    """Number of records of the block at ``at`` that are accounted for."""
    begin: Count = 0
    """Start of the last block with accounted records."""
    is_cut: bool = False
    """Whether the file ended within that block."""
