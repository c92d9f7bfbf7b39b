"""Opens RocksDB the one way we use it, and translates its errors.

Raw bytes in and out. One block cache and one bound for write buffers serve all
databases of the process, so that 16 or 64 partitions cost little more than one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    WriteBufferManager,
    WriteOptions,
)

from walle_stream.errors import (
    StoreCorruptedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreMissingError,
)

BLOCK_CACHE_BYTES: Final = 64 * 1024 * 1024
"""Block cache of the process, shared by all databases."""

WRITE_BUFFERS_BYTES: Final = 256 * 1024 * 1024
"""Bound of all write buffers of the process."""

_WRITE_BUFFER_BYTES: Final = 32 * 1024 * 1024

_cache: list[Cache] = []
_write_buffers: list[WriteBufferManager] = []


def open_rocks(path: Path, *, read_only: bool = False) -> Rdict:
    """Open a database of raw bytes, creating it if it may be written.

    Args:
        path: Its folder; the parent exists.
        read_only: Read a snapshot as of now, beside a process that writes.

    Raises:
        StoreLockedError: Another process writes it.
        StoreMissingError: It does not exist and may not be made.
        StoreError: It cannot be opened for another reason.
    """
    if read_only and not (path / "CURRENT").exists():
        raise StoreMissingError(f"{path} is no database: check --data-dir, or run first")
    options = _options()
    access = AccessType.read_only(error_if_log_file_exist=False) if read_only else None
    with map_rocks_errors(path):
        if access is not None:
            return Rdict(
                str(path), options, column_families={"default": options}, access_type=access
            )
        # options are dropped silently on a second open unless they are given
        # for the column family as well
        return Rdict(str(path), options, column_families={"default": options})


def write_options(*, sync: bool) -> WriteOptions:
    """Return how commits are written.

    Args:
        sync: Wait for the disk at every commit: survives a power cut too.
    """
    options = WriteOptions()
    options.sync = sync
    return options


@contextmanager
def map_rocks_errors(path: Path) -> Iterator[None]:
    """Translate RocksDB's errors, which differ in their text alone.

    Args:
        path: The database, for the message.

    Raises:
        StoreCorruptedError: The database is damaged.
        StoreFullError: The disk is full.
        StoreLockedError: Another process has it open.
        StoreError: Anything else that RocksDB says.
    """
    try:
        yield
    except StoreError:
        raise
    except Exception as error:  # rocksdict raises bare Exception for everything
        text = str(error)
        lowered = text.lower()
        if "lock" in lowered and ("lock file" in lowered or "no locks available" in lowered):
            raise StoreLockedError(
                f"{path} is open in another process: stop it or use another --data-dir ({text})"
            ) from error
        if "no space left" in lowered or "file too large" in lowered:
            raise StoreFullError(
                f"the disk of {path} is full, the last commit was refused as a whole: free space "
                f"and run the same command again ({text})"
            ) from error
        if "corruption" in lowered or "checksum" in lowered:
            raise StoreCorruptedError(
                f"{path} is damaged: restore it from a copy or use a new --data-dir ({text})"
            ) from error
        raise StoreError(f"{path}: {text}") from error


def _options() -> Options:
    if not _cache:
        _cache.append(Cache(BLOCK_CACHE_BYTES))
        # positional on purpose: the stub and the library name it differently
        _write_buffers.append(WriteBufferManager(WRITE_BUFFERS_BYTES, False))  # noqa: FBT003
    blocks = BlockBasedOptions()
    blocks.set_block_cache(_cache[0])
    blocks.set_bloom_filter(10, False)  # noqa: FBT003 - full filter, not per block
    blocks.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - the library takes no name
    options.set_block_based_table_factory(blocks)
    options.set_write_buffer_manager(_write_buffers[0])
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_level_zero_file_num_compaction_trigger(8)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_background_jobs(2)
    options.set_max_open_files(64)
    options.set_keep_log_file_num(2)
    return options
