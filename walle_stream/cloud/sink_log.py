r"""Merged features that some sink does not have for good: rows of their table, by number.

A feature is a row from the write batch that merged it until every sink has it. So a sink that is
away delays nobody, and behind a death features come again, with the numbers that they had.

Keys in the table's database::

    \x06 u64 number    MergedFeature, MessagePack
    \x07               behind the last number
    \x07 NAME          place of a sink: the first number that it wants
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final

import msgspec
from rocksdict import Rdict, WriteBatch

from walle_stream.ports import MergedFeature
from walle_stream.store.rocks import RocksErrorMap, scan_rocks
from walle_stream.wire.frame import FeatureRecord

_ROW: Final = b"\x06"
_PLACE: Final = b"\x07"
_U64: Final = Struct(">Q")
_PART_BYTES: Final = 2**20

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(MergedFeature).decode


class SinkLog:
    """The rows of one table. The table's thread adds, those of the sinks read and note places."""

    def __init__(self, database: Rdict, path: Path, names: Sequence[str]) -> None:
        """Read the places of the sinks, of which there is one at least; blocks."""
        self._database, self._path = database, path
        self.using = Lock()
        """Held while a sink's thread is in the database, which cannot be closed then."""
        with RocksErrorMap(path):
            self.places: dict[str, int] = {name: self._number(name.encode()) for name in names}
            """By sink, the first number that it wants."""
            self.end = self._number(b"")
            """Behind the last row that was written."""
        self._forgotten = min(self.places.values())

    def add(self, batch: WriteBatch, rows: Sequence[MergedFeature]) -> None:
        """Add some rows, behind all others, to the batch that merges them."""
        for row in rows:
            batch.put(_ROW + _U64.pack(row.number), _encode(row))
        batch.put(_PLACE, _U64.pack(rows[-1].number + 1))

    def sync(self) -> None:
        """Let rows survive a power cut before a sink has them; blocks.

        Or others might have their numbers afterwards.

        Raises:
            StoreError: The table is closed.
        """
        with self.using, RocksErrorMap(self._path):
            self._database.flush_wal(sync=True)

    def rows(self, name: str) -> Iterator[MergedFeature]:
        """Iterate over what a sink does not have for good.

        A part at a time is read: an iterator that lived while the sink writes would keep the
        database from being closed.
        """
        number = self.places[name]
        while part := self._part(number):
            yield from part
            number = part[-1].number + 1

    def _part(self, number: int) -> list[MergedFeature]:
        start, part = _ROW + _U64.pack(number), list[MergedFeature]()
        left = _PART_BYTES
        with self.using:
            for _, row in scan_rocks(self._database, self._path, start, _PLACE):
                part.append(_decode(row))
                left -= len(row)
                if left <= 0:
                    break
        return part

    def move(self, name: str, place: int) -> None:
        """Note a sink's place, and let go what no sink wants; blocks."""
        self.places[name] = place
        batch = WriteBatch(raw_mode=True)
        batch.put(_PLACE + name.encode(), _U64.pack(place))
        wanted = min(self.places.values())
        if wanted > self._forgotten:
            batch.delete_range(_ROW + _U64.pack(self._forgotten), _ROW + _U64.pack(wanted))
            self._forgotten = wanted
        with self.using, RocksErrorMap(self._path):
            self._database.write(batch)

    def _number(self, name: bytes) -> int:
        row = self._database.get(_PLACE + name)
        return int(_U64.unpack(row)[0]) if row else 0


def as_merged(number: int, incarnation: str, record: FeatureRecord) -> MergedFeature:
    """Return a feature as sinks get it."""
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
