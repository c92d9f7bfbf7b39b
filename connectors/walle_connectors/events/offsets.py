"""Resume tokens of a file of events: a place between two rows, and what stands before it.

The bytes are JSON: ``{"v": 1, "at": 91532, "line": 81, "tail": [1104,
907060870], "is_end": false}``; packed, ``at`` is the byte of a block, and ``index`` (a place
in it), ``begin`` and ``is_cut`` come beside.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from walle_stream.errors import SourceError

OFFSET_VERSION: Final = 1
"""Version of the offsets' layout."""


class Position(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where a partition stands."""

    v: int = OFFSET_VERSION
    at: int = 0
    """Bytes of the file, decompressed, that are accounted; behind a line's end, which
    the file's last line may lack."""
    line: int = 0
    """Lines among them."""
    tail: tuple[int, int] = (0, 0)
    """Length and CRC-32 of the last of them without its end: a file that differs there
    is another one."""
    is_end: bool = False
    """The file ended there, and the partition was told so."""

    @property
    def place(self) -> tuple[int, int]:
        """What orders positions."""
        return self.at, 0


class PackedPosition(Position, kw_only=True, forbid_unknown_fields=True):
    """Where a partition stands in a file of blocks.

    ``at`` is where the next block to read begins, ``line`` counts records, ``tail`` is length
    and CRC-32 of what stands at ``begin``.
    """

    index: int
    """Records of the block at ``at`` that are accounted."""
    begin: int = 0
    """Where the last block begins of which something is accounted."""
    is_cut: bool = False
    """The file ended within it."""

    @property
    def place(self) -> tuple[int, int]:
        """What orders positions."""
        return self.at, self.index


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Position)


def encode_position(position: Position) -> bytes:
    """Encode a position as an offset."""
    return _encoder.encode(position)


def decode_positions[P: Position](
    offsets: Mapping[int, bytes], partition_count: int, beginning: P
) -> list[P]:
    """Decode the offsets of all partitions.

    Args:
        offsets: By partition; one without begins at the beginning.
        partition_count: Number of partitions.
        beginning: Where that is; the others are positions of its kind.

    Raises:
        SourceError: An offset is damaged, or not of this source.
    """
    decoder = msgspec.json.Decoder(type(beginning))
    return [
        _decode(partition, offsets.get(partition), decoder, beginning)
        for partition in range(partition_count)
    ]


def _decode[P: Position](
    partition: int, offset: bytes | None, decoder: msgspec.json.Decoder[P], beginning: P
) -> P:
    if offset is None:
        return beginning
    try:
        position = decoder.decode(offset)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        if _is_of_nothing(offset):
            return beginning  # the file was empty then, and of either format
        raise SourceError(
            f"the offset of partition {partition} is not one of a file of events ({error}): give "
            "the source that the data directory was made from, or a new --data-dir"
        ) from error
    numbers = [position.at, position.line, *position.tail]
    if isinstance(position, PackedPosition):
        numbers += [position.index, position.begin]
    if position.v != OFFSET_VERSION or min(numbers) < 0:
        raise SourceError(
            f"the offset of partition {partition} has layout {position.v}, this version reads "
            f"{OFFSET_VERSION}: use the version of walle_stream that wrote it"
        )
    return position


def _is_of_nothing(offset: bytes) -> bool:
    try:
        position = _decoder.decode(offset)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return False
    return position.at == 0 and position.is_end
