"""Split of a partition's database into itself and those of new partitions.

The new databases are valid only as a whole: their maker uses them when all is done.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import lru_cache
from itertools import batched
from pathlib import Path
from typing import Final

from rocksdict import WriteBatch

from walle_stream.errors import StoreError
from walle_stream.store.files import make_folder
from walle_stream.store.rocks import RocksErrorMap, open_rocks, scan_rocks

_ROWS: Final = 2_000

type Route = Callable[[bytes, bytes], Iterable[int]]
"""Returns the numbers of the new databases that get a row, by key and value."""


def split_database(
    source: Path,
    targets: Mapping[int, Path],
    route: Route,
    last_rows: Callable[[int], Mapping[bytes, bytes]],
) -> None:
    """Make databases of the rows of a closed one, which stays unchanged; blocks.

    Existing files at a target are removed. ``last_rows`` returns a target's additional rows, and is
    called after all rows were copied.

    Raises:
        StoreError: The source cannot be read, or a target cannot be written.
    """
    with ExitStack() as stack:
        old = open_rocks(source, read_only=True)
        stack.callback(old.close)
        made = {}
        for number, path in targets.items():
            shutil.rmtree(path, ignore_errors=True)
            make_folder(path.parent)
            made[number] = open_rocks(path)
            stack.callback(made[number].close)

        def write(number: int, rows: Iterable[tuple[bytes, bytes]]) -> None:
            batch = WriteBatch(raw_mode=True)
            for key, value in rows:
                batch.put(key, value)
            with RocksErrorMap(targets[number]):
                made[number].write(batch)

        for some in batched(scan_rocks(old, source, b"", b"\xff"), _ROWS, strict=False):
            shares: dict[int, list[tuple[bytes, bytes]]] = {}
            for row in some:
                for number in route(*row):
                    shares.setdefault(number, []).append(row)
            for number, rows in shares.items():
                write(number, rows)
        for number in targets:
            write(number, last_rows(number).items())
            with RocksErrorMap(targets[number]):
                made[number].flush()


def placed(
    home: Callable[[str], int], targets: Mapping[int, Path], source: Path
) -> Callable[[str], int]:
    """Return ``home`` with a check that the result is a target; it expects rows sorted by device.

    The returned function raises ``StoreError`` for a device that belongs to another partition.
    """

    @lru_cache(1)
    def place(device_id: str) -> int:
        number = home(device_id)
        if number not in targets:
            raise StoreError(
                f"{source} has device {device_id!r}, which belongs to partition {number}: its "
                "records were not placed by Kafka's own partitioner (murmur2 of the key), so "
                "its new partition in the topic is unknown"
            )
        return number

    return place
