"""RocksDB as this project uses it, and translation of its errors.

Keys and values are raw bytes. One block cache and one limit for write buffers serve all databases
of the process, so that 16 or 64 partitions cost little more than one.

Four facts of rocksdict shape this module (tests hold each):

- Options for an existing database are dropped silently unless they are also given for the column
  family.
- A read-only open beside a writer takes no lock. The writer's flush may delete a write-ahead log
  after the reader has read the manifest and before it reads the logs. The reader then misses rows
  without an error, so the open is repeated until no log disappeared meanwhile.
- A read-only open writes a file into the folder. If it may not, it gets links in another folder.
- It holds the interpreter's lock through every call, ``sync`` commits included, except a flush of
  the log. Commits are therefore written without ``sync``, and flushed beside.

The next open cuts torn tails of a killed process's log (RocksDB's point-in-time recovery). No write
batch is ever half applied, and no acknowledged one is lost.
"""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DbClosedError,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBufferManager,
)

from walle_stream.errors import (
    StoreCorruptedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreMissingError,
)
from walle_stream.store.durability import Durability

BLOCK_CACHE_BYTES: Final = 64 * 1024 * 1024
"""Default size of the block cache that all databases of the process share."""

WRITE_BUFFERS_BYTES: Final = 256 * 1024 * 1024
"""Limit of all write buffers of the process.

With it, 16 busy partitions flush at 16 MB each, a few busy ones at their full 32 MB.
"""

WRITE_BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a database's rows in memory before a flush; 8 MB triples the background's CPU."""

_OPEN_FILES_MAX: Final = 64  # per database; a reader beside a writer opens all files
_READ_ONLY_ATTEMPTS: Final = 200
_READ_ONLY_RETRY_S: Final = 0.01
_NOTE: Final = "rocksdict-config.json"
_BLOOM_BITS: Final = 10
_LEVELS: Final = 7

# module globals: rocksdict has no other place that all databases share
_cache = Cache(BLOCK_CACHE_BYTES)
_write_buffers = WriteBufferManager(WRITE_BUFFERS_BYTES, False)  # noqa: FBT003 - no keywords there


def open_rocks(path: Path, *, read_only: bool = False, packs_flushes: bool = False) -> Rdict:
    """Open a database of raw bytes, creating it unless it is read-only.

    Its parent exists. ``read_only`` reads a snapshot of the present state, beside a process that
    writes. ``packs_flushes`` also compresses the output of flushes, for rows that stay.

    Raises:
        StoreLockedError: Another process writes it.
        StoreMissingError: It does not exist and must not be made.
        StoreError: It cannot be opened for another reason.
    """
    if read_only:
        return _open_read_only(path)
    built = _build_options(packs_flushes=packs_flushes)
    with RocksErrorMap(path):
        return Rdict(str(path), built, column_families={"default": built})


def scan_rocks(
    database: Rdict, path: Path, start: bytes, end: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """Iterate over start ≤ key < end, ascending, as of the request for the first row.

    The database stays locked while the iterator lives, even if the database is closed.

    Raises:
        StoreError: The database is closed, or damaged at some row, where RocksDB's own iterators
            would just end.
    """
    with RocksErrorMap(path):
        # stays with the iterator, as rocksdict frees the limit with it
        bound = ReadOptions()
        bound.set_iterate_upper_bound(end)
        iterator = database.iter(bound)
        iterator.seek(start)
        while iterator.valid():
            yield iterator.key(), iterator.value()
            iterator.next()
        iterator.status()


def set_block_cache_bytes(size_bytes: int) -> None:
    """Limit the block cache that all databases of the process share; drops the excess."""
    _cache.set_capacity(size_bytes)


def durability_of(database: Rdict, path: Path, sync_ms: float | None) -> Durability:
    """Return the group commit of a database; close it before the database."""
    map_errors = RocksErrorMap(path)

    def flush() -> None:
        with map_errors:
            database.flush_wal(sync=True)

    return Durability(flush, sync_ms, f"{path.parent.name}/{path.name}")


class RocksErrorMap:
    """Translator of RocksDB's errors, which differ only in their text.

    A reusable context manager. RocksDB's errors become ``StoreCorruptedError``, ``StoreFullError``,
    ``StoreLockedError``, ``StoreMissingError`` or plain ``StoreError``; other exceptions pass
    unchanged. It is a class for speed, as it surrounds every get.
    """

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        """Keep the path of the database."""
        self._path = path

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        """Translate the bare ``Exception`` that rocksdict raised.

        Raises:
            StoreError: The class that fits the text.
        """
        if kind is Exception or kind is DbClosedError:
            translated: StoreError = _translate(self._path, error)
            raise translated from error


def _translate(path: Path, error: BaseException | None) -> StoreError:
    if isinstance(error, DbClosedError):
        return StoreError(f"{path} is closed: open it again")
    said = " ".join(str(error).split())  # some have several lines
    # the path is the user's, and may contain any of the words below
    text = said.replace(str(path), "").lower()
    for needles, kind, advice in _MEANINGS:
        if any(needle in text for needle in needles):
            return kind(f"{path} {advice} ({said})")
    if "previous error" in text and _is_full(path):
        # a background flush got the first error; this one follows from it
        return StoreFullError(f"{path} {_FULL_ADVICE} ({said})")
    return StoreError(f"{path}: {said}")


def _is_full(path: Path) -> bool:
    with suppress(OSError):
        return shutil.disk_usage(path).free < _FULL_BYTES
    return False


_FULL_BYTES: Final = 4 * 1024 * 1024
_FULL_ADVICE: Final = (
    "is on a full disk, the last commit was refused as a whole: free space and run again"
)
_MEANINGS: Final[tuple[tuple[tuple[str, ...], type[StoreError], str], ...]] = (
    (
        ("no space left on device", "file too large", "disk quota exceeded"),
        StoreFullError,
        _FULL_ADVICE,
    ),
    (
        ("lock hold by current process", "while lock file"),
        StoreLockedError,
        "is open in another process: stop it or use another --data-dir",
    ),
    (
        ("too many open files",),
        StoreError,
        "needs more file handles than the process has: raise `ulimit -n` or use fewer partitions",
    ),
    (
        ("/current: no such file", "does not exist (create_if_missing is false)"),
        StoreMissingError,
        "is no database: check --data-dir, or run first",
    ),
    (
        ("corruption", "checksum", "no such file or directory"),
        StoreCorruptedError,
        "is damaged: restore it from a copy or use a new --data-dir",
    ),
)


def _open_read_only(path: Path) -> Rdict:
    # every file is opened at once, as the writer may delete any of them later
    built = _build_options(max_open_files=-1)
    access = AccessType.read_only(error_if_log_file_exist=False)
    for attempts_left in reversed(range(_READ_ONLY_ATTEMPTS)):
        if not (path / "CURRENT").exists():  # rocksdict would make the folder
            raise StoreMissingError(f"{path} is no database: check --data-dir, or run first")
        oldest = min(path.glob("*.log"), default=None)
        try:
            with _writable(path) as folder, RocksErrorMap(path):
                database = Rdict(
                    str(folder), built, column_families={"default": built}, access_type=access
                )
        except StoreError as error:
            # a file of the manifest was deleted before it was opened
            if "no such file" not in str(error).lower() or not attempts_left:
                raise
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        else:
            # logs are deleted in order: if the oldest exists, all do
            if oldest is None or oldest.exists():
                return database
            database.close()
        time.sleep(_READ_ONLY_RETRY_S)
    raise StoreError(f"{path} changes too fast to be read now: try again, or stop the run")


@contextmanager
def _writable(path: Path) -> Iterator[Path]:
    # rocksdict writes its own note into the folder even for readers. If it may not, it gets links
    # to the files, which are needed until all are open
    if os.access(path, os.W_OK):
        yield path
        return
    with TemporaryDirectory(prefix="walle-read-") as copy:
        for file in path.iterdir():
            if file.name != _NOTE:
                (Path(copy) / file.name).symlink_to(file.absolute())
        yield Path(copy)


def _build_options(
    max_open_files: int = _OPEN_FILES_MAX, *, packs_flushes: bool = False
) -> Options:
    blocks = BlockBasedOptions()
    blocks.set_block_cache(_cache)
    blocks.set_bloom_filter(_BLOOM_BITS, False)  # noqa: FBT003 - full filter, not per block
    blocks.set_format_version(5)
    # indices of open tables stay in memory and grow with the kept rows; sharing key prefixes
    # reduces them to a third (make bench-growth)
    blocks.set_index_block_restart_interval(16)
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - no keywords there
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(_write_buffers)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_level_zero_file_num_compaction_trigger(8)
    # uncompressed, as a flush's output is rewritten soon: compression costs 3 % of a run's CPU
    first = DBCompressionType.lz4() if packs_flushes else DBCompressionType.none()
    options.set_compression_per_level([first, *[DBCompressionType.lz4()] * (_LEVELS - 1)])
    options.set_max_background_jobs(2)
    options.set_max_open_files(max_open_files)
    # by default it starts 16 threads at each opening, which have almost no work
    options.set_max_file_opening_threads(1)
    options.set_keep_log_file_num(2)
    # no statistics threads, which would wake an idle process
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
