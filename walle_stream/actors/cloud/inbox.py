"""Messages that other processes left in the data directory, on their way into the tunnel.

A file is deleted when all of it is durable in the tunnel. After a death in between it is sent
once more, and the devices' side drops it: each message names its sender, and its number.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from walle_stream.clock import monotonic_ms
from walle_stream.errors import EnvelopeError
from walle_stream.ports import DownlinkSender
from walle_stream.store.inbox import inbox_files, read_inbox
from walle_stream.wire.envelope import decode_downlink

if TYPE_CHECKING:
    from walle_stream.types import UplinkFrame

_log = logging.getLogger(__name__)

LOOK_MS: Final = 200.0
"""Between two looks into the folder."""

_FILES_MAX: Final = 8  # that are on their way to the disk


class Inbox:
    """The inbox of one data directory. One thread, the cloud actor's."""

    def __init__(
        self,
        folder: Path,
        sender: DownlinkSender,
        partition_of: Callable[[str], int],
        partitions: Sequence[int],
    ) -> None:
        """Begin; nobody else sends with this sender."""
        self._folder = folder
        self._sender = sender
        self._partition_of = partition_of
        self._partitions = partitions
        self._files: dict[int, tuple[Path, int]] = {}  # on their way, with what is missing
        self._last = 0
        self._look_ms = 0.0

    def step(self) -> None:
        """Send what lies there, now and then, and delete what is durable.

        Raises:
            WalleError: A file cannot be read, or the tunnel is closed.
        """
        if self._files:
            self._settle()
        if monotonic_ms() < self._look_ms:
            return
        self._look_ms = monotonic_ms() + LOOK_MS
        known = {path for path, _ in self._files.values()}
        for path in inbox_files(self._folder):
            if len(self._files) >= _FILES_MAX:
                self._look_ms = 0.0
                break
            if path not in known:
                self._send(path)
        self._settle()

    def _send(self, path: Path) -> None:
        frames: list[UplinkFrame] = []
        self._last += 1
        try:
            for data in read_inbox(path):
                device_id = decode_downlink(data).device_id
                to = [self._partition_of(device_id)] if device_id else self._partitions
                frames += [(partition, self._last, data) for partition in to]
        except EnvelopeError as error:
            _log.error("messages are put aside: %s", error)
            path.rename(path.with_name(f".refused-{path.name}"))
            return
        self._files[self._last] = path, len(frames)
        self._sender.send(frames)

    def _settle(self) -> None:
        for partition in self._partitions:
            for number in self._sender.acks(partition):
                path, missing = self._files[number]
                self._files[number] = path, missing - 1
        for number in [number for number, (_, missing) in self._files.items() if not missing]:
            path, _ = self._files.pop(number)
            path.unlink(missing_ok=True)
