"""Messages that other processes left in the data directory, on their way to its partitions.

A file is first split into one file for each partition, ``shared/NUMBER-NAME``. The process that has
the partition open takes such a file, and deletes it when its messages are durable in the partition.
After a crash in between, messages come once more. The devices' side drops them by their sender and
number.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.cloud.host_tables import HostTables
from walle_stream.cloud.own_table import OwnTable
from walle_stream.errors import EnvelopeError, StoreError
from walle_stream.store.inbox import inbox_files, put_inbox, read_inbox
from walle_stream.wire.envelope import decode_downlink

_log = logging.getLogger(__name__)

LOOK_MS: Final = 200.0
"""Interval between checks of the folder."""


class Inbox:
    """The inbox of one data directory. Any thread."""

    def __init__(
        self, folder: Path, tables: HostTables, partition_of: Callable[[str], int], count: int
    ) -> None:
        """Begin; other processes may use the same inbox with other partitions."""
        self._folder, self._shared = folder, folder / "shared"
        self._tables = tables
        self._partition_of, self._count = partition_of, count
        self._sent: dict[Path, tuple[OwnTable, int]] = {}  # with the write's ticket
        self._look_ms = 0.0
        self._lock = Lock()

    def step(self, *, is_due: bool = False) -> None:
        """Take files at intervals, and delete durable ones; blocks.

        ``is_due``: whether to take them now.

        Raises:
            WalleError: A file cannot be read or written.
        """
        with self._lock:
            self._settle()
            if monotonic_ms() < self._look_ms and not is_due:
                return
            self._look_ms = monotonic_ms() + LOOK_MS
            for path in inbox_files(self._folder):
                self._share(path)
            tables = self._tables.by_number
            for path in inbox_files(self._shared):
                number = path.name.partition("-")[0]
                if number.isdecimal() and int(number) in tables and path not in self._sent:
                    self._take(path, int(number), tables[int(number)])
            self._settle()

    def _share(self, path: Path) -> None:
        shares: dict[int, list[bytes]] = {}
        try:
            for data in read_inbox(path):
                device_id = decode_downlink(data).device_id
                to = [self._partition_of(device_id)] if device_id else range(self._count)
                for number in to:
                    shares.setdefault(number, []).append(data)
        except FileNotFoundError:
            return  # another process has taken it
        except EnvelopeError as error:
            _put_aside(path, error)
            return
        for number, messages in shares.items():
            put_inbox(self._shared / f"{number:02d}-{path.name}", messages)
        path.unlink(missing_ok=True)

    def _take(self, path: Path, number: int, table: OwnTable) -> None:
        try:
            self._sent[path] = table, table.send_down(read_inbox(path))
        except FileNotFoundError:
            return
        except EnvelopeError as error:
            _put_aside(path, error)
        except StoreError:
            if self._tables.by_number.get(number) is table:
                raise  # otherwise it was closed meanwhile

    def _settle(self) -> None:
        for path, (table, ticket) in list(self._sent.items()):
            with suppress(StoreError):  # the next opening takes it once more
                if not table.is_durable(ticket):
                    continue
                path.unlink(missing_ok=True)
            del self._sent[path]


def _put_aside(path: Path, error: EnvelopeError) -> None:
    _log.error("messages are put aside, as they cannot be read: %s", error)
    with suppress(FileNotFoundError):  # another process has renamed it
        path.rename(path.with_name(f".refused-{path.name}"))
