"""Move of a device's agent to its new partition after its topics have grown."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from walle_stream.actors.opening.splitting import move_partition
from walle_stream.errors import StoreMissingError
from walle_stream.store.datadir import DataDir
from walle_stream.store.growing import GrowingDataDir

_STRIDE: Final = 1 << 48
"""Distance between the position ranges of successive partitions."""


def move_device(path: Path, place: Callable[[int], int], count: int, compression: str) -> None:
    """Move the data directory of an agent to another number of partitions; blocks.

    ``place`` returns the device's partition for a number of partitions. A crash before the end
    changes nothing. The function leaves a missing directory, or one with that number, alone.

    Raises:
        StoreError: The directory is in use, cannot be read, or has a log of its own.
    """
    try:
        meta = DataDir.open_read_only(path).meta
    except StoreMissingError:
        return
    before = meta.partition_count
    if before == count:
        return
    keys: dict[str, Any] = {"pipeline": meta.pipeline, "source": meta.source, "has_cloud": False}
    keys["placing"] = meta.placing or 0
    with DataDir.open(path, partition_count=before, **keys) as opened:
        databases = GrowingDataDir(opened, count)
        source = databases.old(place(before))
        if source is not None and (source / "CURRENT").exists():
            move_partition(source, databases.new(place(count)), compression)
        databases.publish()


class MovedDownlink:
    """``Downlink`` and ``HasLog`` over all partitions that a device was in, in order.

    Each partition is read to its end at the time when this run reached it, then the next one from
    its beginning. Messages sent before a growth therefore come before those sent after it.
    """

    def __init__(self, downlink: Any, partitions: Sequence[int]) -> None:
        """Wrap a downlink; the last partition is the device's current one."""
        self._downlink = downlink
        self._partitions = partitions
        self._at, self._last = 0, len(partitions) - 1

    @property
    def log_id(self) -> str:
        """The topic's id; see ``HasLog.log_id``."""
        found: str = self._downlink.log_id
        return found

    def receive(self, partition: int, position: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        """Return messages; see ``Downlink.receive``."""
        del partition  # always the last one
        self._at, offset = divmod(position, _STRIDE)
        while True:
            number = self._partitions[self._at]
            found = self._downlink.receive(number, offset, max_bytes)
            is_more = self._at == self._last or self._downlink.is_behind(number)
            if not (found or is_more):
                found = self._downlink.receive(number, offset, max_bytes)  # arrived meanwhile
            if found or is_more:
                return [(self._at * _STRIDE + each, data) for each, data in found]
            self._at, offset = self._at + 1, 0

    def is_behind(self, partition: int) -> bool:
        """Return whether more messages may come; see ``HasLog.is_behind``."""
        return self._at < self._last or bool(self._downlink.is_behind(partition))

    def release(self, partition: int, position: int) -> None:
        """Do nothing: the topic's retention decides; see ``Downlink.release``."""
