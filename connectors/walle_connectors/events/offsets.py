"""Resume tokens of a file of events: a place between two lines, and what stands before it.

The bytes are JSON: ``{"v": 1, "at": 91532, "line": 81, "tail": [1104,
907060870], "is_end": false}``.
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


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Position)


def encode_position(position: Position) -> bytes:
    """Encode a position as an offset."""
    return _encoder.encode(position)


def decode_positions(offsets: Mapping[int, bytes], partition_count: int) -> list[Position]:
    """Decode the offsets of all partitions.

    Args:
        offsets: By partition; one without begins at the beginning.
        partition_count: Number of partitions.

    Raises:
        SourceError: An offset is damaged, or not of this source.
    """
    return [_decode(partition, offsets.get(partition)) for partition in range(partition_count)]


def _decode(partition: int, offset: bytes | None) -> Position:
    if offset is None:
        return Position()
    try:
        position = _decoder.decode(offset)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise SourceError(
            f"the offset of partition {partition} is not one of a file of events ({error}): give "
            "the source that the data directory was made from, or a new --data-dir"
        ) from error
    if position.v != OFFSET_VERSION or min(position.at, position.line, *position.tail) < 0:
        raise SourceError(
            f"the offset of partition {partition} has layout {position.v}, this version reads "
            f"{OFFSET_VERSION}: use the version of walle_stream that wrote it"
        )
    return position
