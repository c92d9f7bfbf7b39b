r"""Merged features that some sink has yet to store durably: rows of their table, by number.

A feature is a row from the write batch that merged it until every sink has it. An unreachable sink
therefore delays no other one, and after a crash features come again with the same numbers.

Keys in the table's database::

    \x06 u64 number    MergedFeature, MessagePack
    \x07               number after the last one
    \x07 NAME          place of a sink: its next number
    \x08               number after the last one that sinks may have, see ``hold``
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from threading import Lock
from typing import Final

import msgspec

from walle_stream.ports import MergedFeature
from walle_stream.store.keyspace import KeyBatch, KeySpace
from walle_stream.wire.frame import FeatureRecord

_ROW: Final = b"\x06"
_PLACE: Final = b"\x07"
_KEPT: Final = b"\x08"
_U64: Final = Struct(">Q")
_PART_BYTES: Final = 2**20

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(MergedFeature).decode


class SinkLog:
    """The rows of one table. The table's thread adds rows; sinks' threads read and store places."""

    def __init__(self, space: KeySpace, names: Sequence[str]) -> None:
        """Read the places of the sinks, at least one; blocks."""
        self._space = space
        self.using = Lock()
        """Held while a sink's thread uses the database, which cannot be closed then."""
        self.places: dict[str, int] = {name: self._number(name.encode()) for name in names}
        """Next number of each sink."""
        self.end = self._number(b"")
        """Number after the last written row."""
        self._forgotten = min(self.places.values())
        self._kept: int | None = None
        self._copied = 0

    def add(self, batch: KeyBatch, rows: Sequence[MergedFeature]) -> None:
        """Append rows to the batch that merges them."""
        for row in rows:
            batch.put(_ROW + _U64.pack(row.number), _encode(row))
        batch.put(_PLACE, _U64.pack(rows[-1].number + 1))

    def hold(self, *, is_snapshot: bool) -> None:
        """Hold rows back from sinks until a snapshot has them, including existing rows.

        The next owner of the partition begins at that snapshot and gives the same features the same
        numbers; later features may get others. ``is_snapshot``: whether the database was just
        fetched.
        """
        if is_snapshot:
            self.copied()
            self.kept()
        else:
            self._kept = self._number_at(_KEPT)

    @property
    def ready(self) -> int:
        """Number after the last row that sinks may have."""
        return self.end if self._kept is None else min(self.end, self._kept)

    def copied(self) -> None:
        """Record the rows of the copy that is made now."""
        self._copied = self.end

    def kept(self) -> None:
        """Release the rows of the last copy to sinks; blocks.

        Raises:
            StoreError: The table is closed.
        """
        batch = self._space.batch()
        batch.put(_KEPT, _U64.pack(self._copied))
        with self.using:
            self._space.write(batch)
        self._kept = self._copied

    def sync(self) -> None:
        """Make rows survive a power cut before a sink gets them; blocks.

        Otherwise other features might get their numbers afterwards.

        Raises:
            StoreError: The table is closed.
        """
        with self.using:
            self._space.sync()

    def rows(self, name: str) -> Iterator[MergedFeature]:
        """Iterate over the rows that a sink has yet to store durably.

        The rows are read in parts: an iterator that lived while the sink writes would keep the
        database open.
        """
        number = self.places[name]
        while part := self._part(number):
            yield from part
            number = part[-1].number + 1

    def _part(self, number: int) -> list[MergedFeature]:
        start, part = _ROW + _U64.pack(number), list[MergedFeature]()
        left = _PART_BYTES
        with self.using:
            for _, row in self._space.scan(start, _ROW + _U64.pack(self.ready)):
                part.append(_decode(row))
                left -= len(row)
                if left <= 0:
                    break
        return part

    def move(self, name: str, place: int) -> None:
        """Store a sink's place, and delete rows that no sink needs; blocks."""
        self.places[name] = place
        batch = self._space.batch()
        batch.put(_PLACE + name.encode(), _U64.pack(place))
        wanted = min(self.places.values())
        if wanted > self._forgotten:
            batch.delete_range(_ROW + _U64.pack(self._forgotten), _ROW + _U64.pack(wanted))
            self._forgotten = wanted
        with self.using:
            self._space.write(batch)

    def _number(self, name: bytes) -> int:
        return self._number_at(_PLACE + name)

    def _number_at(self, key: bytes) -> int:
        row = self._space.get(key)
        return int(_U64.unpack(row)[0]) if row else 0


def as_merged(number: int, incarnation: str, record: FeatureRecord) -> MergedFeature:
    """Return a feature in the form for sinks."""
    return MergedFeature(
        number,
        incarnation,
        record.device_id,
        record.task,
        record.task_version,
        record.sequence_number,
        record.feature,
        record.encoding,
        record.event_time_ms,
    )
