"""Resume tokens of a file source: what they say, and their bytes.

The source's *steps* are its rows in file order and its ends, numbered from 1:
an end that was reached after N rows takes the number behind row N (and a file
that grew afterwards goes on behind it). Each step releases events, in an order
that depends on the file alone. A partition's position is how many events were
released to it and given to the host, and the last step whose counts and dead
letters are accounted; what earlier steps released is among the events given.

The bytes are JSON: ``{"v": 1, "step": 17, "events": 42, "ends": [], "is_end":
false, "digest": 907060870}``.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from walle_stream.errors import SourceError

OFFSET_VERSION: Final = 1
"""Version of the offsets' layout."""


class Position(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a partition stands."""

    v: int = OFFSET_VERSION
    step: int = 0
    """The last step that is accounted, 0 before the first."""
    events: int = 0
    """How many events were given, in all."""
    ends: tuple[int, ...] = ()
    """Row counts at which the source had ended so far, ascending."""
    is_end: bool = False
    """The step is an end, and the partition was told so."""
    digest: int | None = None
    """CRC-32 of the rows up to the step: a file that differs there is another one."""

    @property
    def row_count(self) -> int:
        """Rows among the accounted steps."""
        passed = sum(rows + place < self.step for place, rows in enumerate(self.ends))
        return self.step - passed


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

    Returns:
        A position for each partition.

    Raises:
        SourceError: An offset is damaged, or not of this source.
    """
    strange = sorted(partition for partition in offsets if not 0 <= partition < partition_count)
    if strange:
        raise SourceError(
            f"there are offsets of partitions {strange}, the data directory has "
            f"{partition_count}: restore it from a copy, or start with a new --data-dir"
        )
    return [
        _decode(partition, offsets[partition]) if partition in offsets else Position()
        for partition in range(partition_count)
    ]


def known_ends(positions: list[Position]) -> list[int]:
    """Return the ends that any partition has seen, ascending.

    Raises:
        SourceError: Two partitions contradict each other.
    """
    ends = sorted({rows for position in positions for rows in position.ends})
    for partition, position in enumerate(positions):
        # an end below a position that does not know it would have shifted its steps
        if position.ends != tuple(ends[: len(position.ends)]) or any(
            rows + place < position.step
            for place, rows in enumerate(ends[len(position.ends) :], len(position.ends))
        ):
            raise SourceError(
                f"the offset of partition {partition} is not of the same source as the others: "
                "restore the data directory from a copy, or start with a new one"
            )
    return ends


def known_digests(positions: list[Position]) -> dict[int, int]:
    """Return the digest of the rows up to each step that a partition stands at.

    Raises:
        SourceError: Two partitions contradict each other.
    """
    digests: dict[int, int] = {}
    for partition, position in enumerate(positions):
        digest = position.digest
        if digest is not None and digests.setdefault(position.step, digest) != digest:
            raise SourceError(
                f"the offset of partition {partition} is not of the same source as the others: "
                "restore the data directory from a copy, or start with a new one"
            )
    return digests


def _decode(partition: int, offset: bytes) -> Position:
    try:
        position = _decoder.decode(offset)
    except msgspec.DecodeError as error:
        raise SourceError(
            f"the offset of partition {partition} is not one of a file source ({error}): "
            "give the source that the data directory was made from, or a new --data-dir"
        ) from error
    if position.v != OFFSET_VERSION or position.step < 0 or position.events < 0:
        raise SourceError(
            f"the offset of partition {partition} has layout {position.v}, this version reads "
            f"{OFFSET_VERSION}: use the version of walle_stream that wrote it"
        )
    return position
