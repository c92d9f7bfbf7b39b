"""Split of a partition's table into itself and new ones; see ``store.splitting``."""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from walle_stream.cloud.merging import Place
from walle_stream.cloud.partition_table import COUNTS_KEY, PLACE_KEY, PartitionTable
from walle_stream.errors import StoreError
from walle_stream.store.splitting import placed, split_database
from walle_stream.tunnel.receiver import MergeCounts


def split_table(
    source: Path, targets: Mapping[int, Path], home: Callable[[str], int], begin: bytes
) -> None:
    """Make the tables of a partition and of new ones; blocks; see ``PartitionState.split``.

    Reports, and features that sinks have yet to take, stay with the partition itself.

    Raises:
        StoreError: The table cannot be read, or a new one cannot be written; or calls wait, whose
            replies would go to the devices' old partitions.
    """
    with closing(PartitionTable(source, 1)) as table:
        if table.open_calls(0, 1):
            raise StoreError(
                f"{source}: service calls wait for their answers: let walle cloud send them, "
                "and end it by SIGTERM; then start walle run, which takes them"
            )
        counts = table.stats
    own, places = min(targets), placed(home, targets, source)
    devices = dict.fromkeys(targets, 0)

    def route(key: bytes, value: bytes) -> tuple[int, ...]:
        del value
        if key.startswith(b"\x02"):
            place = places(key[1:].decode())
            devices[place] += 1
            return (place,)
        if key.startswith(b"\x10"):
            return (places(key[1 : key.index(b"\0", 1)].decode()),)
        return tuple(targets) if key == b"\x00format" else (own,)

    def last_rows(number: int) -> dict[bytes, bytes]:
        of_number = counts if number == own else MergeCounts()
        of_number = msgspec.structs.replace(of_number, devices=devices[number])
        rows = {COUNTS_KEY: msgspec.msgpack.encode(of_number)}
        if number != own:
            rows[PLACE_KEY] = msgspec.msgpack.encode(Place(0, 0, begin))
        return rows

    split_database(source, targets, route, last_rows)
