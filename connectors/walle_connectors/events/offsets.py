"""Where a partition stands in a file of events: between two rows, and what stands before."""

from typing import ClassVar, override

from walle_stream.reading.offsets import Count, Position


class LinePosition(Position, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place in a file of lines."""

    what: ClassVar[str] = "a file of events"
    order: ClassVar[tuple[str, ...]] = ("at",)

    at: Count = 0
    """Bytes of the file, decompressed, that are accounted; behind a line's end, which
    the file's last line may lack."""
    line: Count = 0
    """Lines among them."""
    tail: tuple[Count, Count] = (0, 0)
    """Length and CRC-32 of the last of them without its end: a file that differs there
    is another one."""

    @override
    @property
    def rows(self) -> int:
        """Rows up to here."""
        return self.line


class PackedPosition(LinePosition, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place in a file of blocks.

    ``at`` is where the next block to read begins, ``line`` counts records, ``tail`` is length
    and CRC-32 of what stands at ``begin``.
    """

    order = ("at", "index")

    index: Count
    """Records of the block at ``at`` that are accounted."""
    begin: Count = 0
    """Where the last block begins of which something is accounted."""
    is_cut: bool = False
    """The file ended within it."""
