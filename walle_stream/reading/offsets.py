"""Offsets: a partition's position in its source, and its bytes.

The bytes are JSON: ``{"v": 2, "is_end": false, ...}`` with further fields of the connector.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, ClassVar, Final, Self

import msgspec

from walle_stream.errors import SourceError
from walle_stream.reading.dead_letters import DECODE_ERRORS

OFFSET_VERSION: Final = 2

type Count = Annotated[int, msgspec.Meta(ge=0)]
"""A count in an offset."""


class Position(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Position of a partition; each kind of source has a subclass."""

    what: ClassVar[str] = "this source"
    """Name of the kind of source, for messages."""
    order: ClassVar[tuple[str, ...]] = ()
    """Fields that order the positions of a source."""

    v: int = OFFSET_VERSION
    is_end: bool = False
    """Whether the source ended there and the partition was told."""

    @property
    def place(self) -> tuple[int, ...]:
        """Key that orders the positions of a source."""
        return tuple(getattr(self, name) for name in self.order)

    @property
    def rows(self) -> int:
        """Rows of the source up to here, from which a limit counts; 0 counts from this run on."""
        return 0

    @classmethod
    def decode(cls, partition: int, offset: bytes) -> Self:
        """Decode an offset.

        Raises:
            SourceError: The offset is damaged, of another kind of source, or of another version.
        """
        try:
            version = msgspec.json.decode(offset, type=_Version).v
            if version == OFFSET_VERSION:
                return msgspec.json.decode(offset, type=cls)
        except DECODE_ERRORS as error:
            raise SourceError(
                f"the offset of partition {partition} is not one of {cls.what} ({error}): give the "
                "source that the data directory was made from, or a new --data-dir"
            ) from error
        raise SourceError(
            f"the offset of partition {partition} has layout {version}, this version reads "
            f"{OFFSET_VERSION}: use the version of walle_stream that wrote it, or a new --data-dir"
        )


class _Version(msgspec.Struct):
    v: int


encode_position = msgspec.json.Encoder().encode


def decode_positions[P: Position](
    offsets: Mapping[int, bytes], numbers: Iterable[int], beginning: P
) -> dict[int, P]:
    """Decode the offsets of partitions.

    A partition without an offset is at ``beginning``, whose class all positions have.

    Raises:
        SourceError: An offset is damaged, of another kind of source, or of no partition.
    """
    known = list(numbers)
    strange = sorted(offsets.keys() - known)
    if strange:
        raise SourceError(
            f"there are offsets of partitions {strange}, but the data directory has {len(known)} "
            "partitions: restore it from a copy, or start with a new --data-dir"
        )
    return {
        number: type(beginning).decode(number, offsets[number]) if number in offsets else beginning
        for number in known
    }
