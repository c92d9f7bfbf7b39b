"""The memory of this process, with RocksDB's own named apart.

Pages of files that the kernel keeps (the page cache) are no part of it: ``file_mib``
are the mapped ones, libraries mostly. RocksDB counts its write buffers, block cache
and open tables itself; they are part of the anonymous memory.
"""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import walle_stream.cloud.partition_table as cloud
import walle_stream.store.partition as partitions

_OPENERS: Final[tuple[Any, ...]] = (cloud, partitions)
_KINDS: Final = ("Rss", "Pss", "Anonymous")


class Memory:
    """Samples of this process; any one thread takes them."""

    def __init__(self, every: int) -> None:
        """Take note of all databases that are opened from now on."""
        self.samples: list[dict[str, float]] = []
        self._every = every
        self._next = 0
        self._databases: list[Any] = []
        self._began = time.monotonic()
        for module in _OPENERS:
            self._watch(module)

    def look(self, events: int) -> None:
        """Take a sample if one is due."""
        if events < self._next:
            return
        self._next = events + self._every
        self.samples.append(self.sample(events))

    def sample(self, events: int) -> dict[str, float]:
        """Return the memory as it is: MiB by kind."""
        found = _rollup()
        rocksdb = {
            "write_buffers": self._sum("rocksdb.size-all-mem-tables"),
            "tables": self._sum("rocksdb.estimate-table-readers-mem"),
            # one for all databases
            "block_cache": self._property(max, "rocksdb.block-cache-usage"),
        }
        mib = {
            "rss": found["Rss"],
            "pss": found["Pss"],
            "anonymous": found["Anonymous"],
            "file": found["Rss"] - found["Anonymous"],
            **{f"rocksdb_{name}": value for name, value in rocksdb.items()},
            "rocksdb": sum(rocksdb.values()),
            "rest": found["Rss"] - sum(rocksdb.values()),
        }
        return {
            "events": events,
            "at_s": round(time.monotonic() - self._began, 1),
            # the main interpreter's: objects, whatever malloc keeps
            "python_blocks": sys.getallocatedblocks(),
            **{f"{name}_mib": round(value / 2**20, 2) for name, value in mib.items()},
        }

    def _watch(self, module: Any) -> None:
        open_rocks = module.open_rocks

        def watched(*arguments: Any, **named: Any) -> Any:
            database = open_rocks(*arguments, **named)
            self._databases.append(database)
            return database

        module.open_rocks = watched

    def _sum(self, name: str) -> int:
        return self._property(sum, name)

    def _property(self, of: Callable[[list[int]], int], name: str) -> int:
        found = [0]
        for database in self._databases:
            with suppress(Exception):  # rocksdict raises no other; a database that was closed
                found.append(database.property_int_value(name) or 0)
        return of(found)


def _rollup() -> dict[str, int]:
    text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    words = [line.split() for line in text.splitlines()[1:]]
    sizes = {each[0].rstrip(":"): int(each[1]) * 1024 for each in words}
    return {name: sizes[name] for name in _KINDS}
