"""The devices that a worker knows: who was seen when, of what class, with which versions.

Bounded in every way: when there are too many devices those unseen for the longest time are
forgotten (each 64th of the table for itself), and what cannot be told apart any more is
counted under ``other``. 18 bytes a slot and a device, about 40 bytes a device at most.
"""

from collections import Counter
from typing import Any, Final

import numpy as np

from walle_deploy.service.shard import Shard

OTHER: Final = 0
"""Number of what is not told apart."""

_SHARD_BITS: Final = 6
_SHARD_SHIFT: Final = 64 - _SHARD_BITS
_CLASSES_MAX: Final = 65_535
_SETS_MAX: Final = 65_536
_CELLS_MAX: Final = 500_000
"""Tasks in all sets of versions: what a hostile fleet can make us remember."""

type Tasks = tuple[tuple[str, str], ...]


class KnownDevices:
    """Remembers devices by the hash of their id; not for several threads at once."""

    def __init__(self, devices_max: int) -> None:
        """Start without any."""
        shards = 1 << _SHARD_BITS
        # hashes are even, but not quite: a little more in each than its share
        rows_max = int(devices_max / shards * 1.05) + 16
        self._shards = [Shard(rows_max) for _ in range(shards)]
        self._classes: dict[tuple[Any, ...], int] = {("",): OTHER}
        self._sets = _VersionSets()
        self.forgotten = 0
        """Devices that had to make room."""

    def __len__(self) -> int:
        """Return how many devices are known."""
        return sum(shard.count for shard in self._shards)

    def see(
        self, device_hash: int, kind: tuple[Any, ...], tasks: dict[str, str], now_s: int
    ) -> None:
        """Remember that a device was here.

        Args:
            device_hash: Of ``id_hash``.
            kind: What it has in common with others: app, versions, model.
            tasks: Its versions by task.
            now_s: Epoch seconds.
        """
        hashed = device_hash or 1  # 0 is an empty slot
        shard = self._shards[hashed >> _SHARD_SHIFT]
        number = self._sets.number(tuple(tasks.items()))
        hashes, slot = shard.hashes, hashed & shard.mask
        while (found := hashes[slot]) != hashed:
            if not found:
                slot = self._add(shard, hashed)
                break
            slot += 1
        before = shard.sets[slot]
        is_new = not shard.seen[slot]
        if is_new or before != number:
            self._sets.move(-1 if is_new else before, number)
            shard.sets[slot] = number
        shard.seen[slot] = now_s
        shard.classes[slot] = self._class_of(kind)

    def _add(self, shard: Shard, hashed: int) -> int:
        gone = shard.make_room()
        if gone is not None:
            self.forgotten += len(gone.sets)
            self._sets.remove(gone.sets)
        hashes, slot = shard.hashes, hashed & shard.mask
        while hashes[slot]:
            slot += 1
        hashes[slot] = hashed
        shard.count += 1
        return int(slot)

    def _class_of(self, kind: tuple[Any, ...]) -> int:
        found = self._classes.get(kind)
        if found is None:
            found = OTHER
            if len(self._classes) < _CLASSES_MAX:
                found = self._classes[kind] = len(self._classes)
        return found

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the devices by task and version."""
        return self._sets.counts()

    def classes(self) -> dict[tuple[Any, ...], int]:
        """Return the devices by class, of those classes that have any; some milliseconds."""
        totals = np.zeros(len(self._classes), np.int64)
        for shard in self._shards:
            hashes, column = np.asarray(shard.hashes), np.asarray(shard.classes)
            totals += np.bincount(column[hashes != 0], minlength=len(totals))
        return {
            kind: int(totals[number]) for kind, number in self._classes.items() if totals[number]
        }


class _VersionSets:
    """Numbers the sets of versions that devices have, and counts devices by them."""

    def __init__(self) -> None:
        self._numbers: dict[Tasks, int] = {}
        self._tasks: list[Tasks] = [()]
        self._devices: list[int] = [0]
        self._free: list[int] = []
        self._cells = 0

    def number(self, tasks: Tasks) -> int:
        found = self._numbers.get(tasks)
        if found is not None:
            return found
        if self._is_full(len(tasks)):
            self._drop_unused()
            if self._is_full(len(tasks)):
                return OTHER
        if self._free:
            found = self._free.pop()
            self._tasks[found] = tasks
        else:
            found = len(self._tasks)
            self._tasks.append(tasks)
            self._devices.append(0)
        self._numbers[tasks] = found
        self._cells += len(tasks)
        return found

    def _is_full(self, more: int) -> bool:
        return len(self._numbers) >= _SETS_MAX or self._cells + more > _CELLS_MAX

    def _drop_unused(self) -> None:
        for tasks, number in list(self._numbers.items()):
            if not self._devices[number]:
                del self._numbers[tasks]
                self._tasks[number] = ()
                self._free.append(number)
                self._cells -= len(tasks)

    def move(self, before: int, after: int) -> None:
        if before >= 0:
            self._devices[before] -= 1
        self._devices[after] += 1

    def remove(self, numbers: Any) -> None:
        for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
            self._devices[int(number)] -= int(count)

    def counts(self) -> dict[tuple[str, str], int]:
        found: Counter[tuple[str, str]] = Counter()
        for tasks, devices in zip(self._tasks, self._devices, strict=True):
            if devices:
                for each in tasks:
                    found[each] += devices
        return dict(found)
