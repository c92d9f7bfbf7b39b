"""The inbox of a data directory: messages from other processes to its cloud side.

The running process has the directory locked. Senders put files here before, during and after a run.
A file is a MessagePack array of downlink envelopes; its name sorts after the earlier files of its
writer. Files are written atomically and durably.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from walle_stream.clock import wall_ms
from walle_stream.errors import EnvelopeError, StoreError
from walle_stream.store.files import make_folder, put_file, refusal
from walle_stream.types import UplinkFrame

_decode: Final = msgspec.msgpack.Decoder(list[bytes]).decode


class InboxSender:
    """``DownlinkSender`` into an inbox, whose reader knows the partitions. One thread."""

    refused_records: Final = 0

    def __init__(self, folder: Path) -> None:
        """Write into an existing folder."""
        self._folder = folder
        self._prefix = f"{wall_ms():015d}-{uuid4().hex[:8]}"
        self._files = 0
        self._acks: dict[int, list[int]] = {}

    def send(self, frames: Sequence[UplinkFrame]) -> None:
        """Write a file; blocks on the disk.

        Raises:
            StoreError: The file cannot be written.
        """
        self._files += 1
        path = self._folder / f"{self._prefix}-{self._files:09d}"
        put_inbox(path, [data for _, _, data in frames])
        for partition, number, _ in frames:
            self._acks.setdefault(partition, []).append(number)

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers of messages on the disk; see ``Uplink.acks``."""
        return self._acks.pop(partition, ())

    def close(self) -> None:
        """Do nothing: sent messages are on the disk."""


def put_inbox(path: Path, messages: Sequence[bytes]) -> None:
    """Write a file of envelopes atomically and durably, and make its folder. Blocks.

    Raises:
        StoreError: The file cannot be written.
    """
    try:
        make_folder(path.parent, mode=0o700)
        put_file(path, msgspec.msgpack.encode(messages), mode=0o600)
    except OSError as error:
        problem = refusal(error, f"{path} cannot be written: {error.strerror or error}")
        raise problem from error


def inbox_files(folder: Path) -> list[Path]:
    """Return the files of a folder in their order; none if there is no folder."""
    try:
        with os.scandir(folder) as found:
            return sorted(Path(each) for each in found if each.is_file() and each.name[0] != ".")
    except FileNotFoundError:
        return []


def read_inbox(path: Path) -> list[bytes]:
    """Return the envelopes of a file; they are not trusted.

    Raises:
        EnvelopeError: The file has no envelopes.
        FileNotFoundError: The file is gone.
        StoreError: The file cannot be read.
    """
    try:
        return _decode(path.read_bytes())
    except msgspec.MsgspecError as error:
        raise EnvelopeError(f"{path} has no valid messages: {error}") from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
