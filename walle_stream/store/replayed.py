"""Replayed dead letters of a data directory: a file that only grows.

It is beside the databases, as a run may have these open. Replaying processes append to it, one at a
time. A line is one letter.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.errors import StoreCorruptedError, StoreError, StoreFullError, StoreLockedError
from walle_stream.store.files import FULL_DISK, sync_folder
from walle_stream.store.locks import try_lock

REPLAYED_NAME: Final = "replayed.jsonl"


class ReplayedLetters:
    """Marks of one data directory. Use it within ``open``."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Use a locked file, open for reading and appending; use ``open``."""
        self._path = path
        self._descriptor = descriptor

    @classmethod
    @contextmanager
    def open(cls, data_dir: Path) -> Iterator["ReplayedLetters"]:
        """Open the marks for a replay.

        Raises:
            StoreLockedError: Another process is replaying.
            StoreError: The file cannot be used.
        """
        path = data_dir / REPLAYED_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error}: correct its mode") from error
        try:
            if not try_lock(descriptor):
                raise StoreLockedError(
                    f"another process is replaying dead letters of {data_dir}: wait for its end"
                )
            sync_folder(data_dir)
            yield cls(path, descriptor)
        finally:
            os.close(descriptor)

    def read(self) -> set[str]:
        """Return the idempotency keys of replayed letters.

        Raises:
            StoreCorruptedError: The file is damaged.
        """
        # a writer that died leaves an incomplete line, whose letters are not marked
        data = self._path.read_bytes()
        os.ftruncate(self._descriptor, data.rfind(b"\n") + 1)
        return _decode(self._path, data)

    def add(self, idempotency_keys: Sequence[str]) -> None:
        """Mark letters; on the disk when it returns.

        Raises:
            StoreFullError: The disk is full.
            StoreError: The file cannot be written.
        """
        lines = b"".join(msgspec.json.encode(key) + b"\n" for key in idempotency_keys)
        try:
            view = memoryview(lines)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fsync(self._descriptor)
        except OSError as error:
            kind = StoreFullError if error.errno in FULL_DISK else StoreError
            raise kind(
                f"{self._path} cannot be written ({error}): the last replayed letters are not "
                "marked, and would be replayed again"
            ) from error


def read_replayed(data_dir: Path) -> set[str]:
    """Return the idempotency keys of replayed letters; changes nothing.

    Raises:
        StoreCorruptedError: The file is damaged.
        StoreError: The file cannot be read.
    """
    path = data_dir / REPLAYED_NAME
    try:
        data = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}: correct its mode") from error
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> set[str]:
    whole, _, _ = data.rpartition(b"\n")
    try:
        return {msgspec.json.decode(line, type=str) for line in whole.splitlines() if line}
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StoreCorruptedError(
            f"{path} is damaged ({error}): delete it to let all letters be replayed again"
        ) from error
