"""The versions on devices, as each device last reported them to a worker.

The memory is bounded. With too many devices, those unseen for the longest time are forgotten. More
sets of versions than an honest fleet has are not distinguished. A device takes about 230 bytes, or
270 in the open mode.
"""

from collections import Counter, OrderedDict
from typing import Final

_SHARDS: Final = 256
_SETS_MAX: Final = 65_536
_CELLS_MAX: Final = 500_000
"""Limit of tasks in all sets of versions, which bounds the memory for a hostile fleet."""

type _Tasks = tuple[tuple[str, str], ...]


class _Versions:
    """A set of versions, shared by all devices that have it."""

    __slots__ = ("devices", "tasks")

    def __init__(self, tasks: _Tasks) -> None:
        self.tasks = tasks
        self.devices = 0


class KnownDevices:
    """Devices by the hash of their id; not for several threads at once."""

    def __init__(self, devices_max: int) -> None:
        """Start without devices."""
        # one large table would take a tenth of a second to grow
        self._shards: list[OrderedDict[int, _Versions]] = [OrderedDict() for _ in range(_SHARDS)]
        # hashes are not perfectly even, so each shard has a little more than its share
        self._shard_max = int(devices_max / _SHARDS * 1.05) + 16
        self._settled: list[dict[int, int]] = [{} for _ in range(_SHARDS)]
        self._askers: list[dict[int, int]] = [{} for _ in range(_SHARDS)]  # by question
        self._sets: dict[_Tasks, _Versions] = {}
        self._cells = 0
        self.forgotten = 0
        """Number of devices that were dropped to make room."""

    def __len__(self) -> int:
        """Return the number of known devices."""
        return sum(map(len, self._shards))

    def see(self, device_hash: int, tasks: dict[str, str]) -> None:
        """Record a visit of a device with its versions."""
        versions, devices = tuple(tasks.items()), self._shards[device_hash % _SHARDS]
        known = devices.get(device_hash)
        if known is not None and known.tasks == versions:
            devices.move_to_end(device_hash)
            return
        if known is not None:
            self._drop(devices.pop(device_hash))
        elif len(devices) >= self._shard_max:
            forgotten, entry = devices.popitem(last=False)
            question = self._settled[device_hash % _SHARDS].pop(forgotten, 0)
            self._askers[question % _SHARDS].pop(question, None)
            self._drop(entry)
            self.forgotten += 1
        devices[device_hash] = entry = self._sets.get(versions) or self._begin(versions)
        entry.devices += 1

    def settle(self, device_hash: int, question: int, *, names_device: bool = False) -> None:
        """Record for a known device that its question found nothing new.

        With ``names_device``, ``asker`` can later find the device from the question.
        """
        settled = self._settled[device_hash % _SHARDS]
        if names_device:
            before = settled.get(device_hash, 0)
            self._askers[before % _SHARDS].pop(before, None)
            self._askers[question % _SHARDS][question] = device_hash
        settled[device_hash] = question

    def asker(self, question: int) -> int:
        """Return the hash of the device that asked this question, or 0 if unknown."""
        return self._askers[question % _SHARDS].get(question, 0)

    def is_settled(self, device_hash: int, question: int) -> bool:
        """Return whether a device's question found nothing new before; if so, note the visit."""
        if self._settled[device_hash % _SHARDS].get(device_hash) != question:
            return False
        self._shards[device_hash % _SHARDS].move_to_end(device_hash)
        return True

    def counts(self) -> dict[tuple[str, str], int]:
        """Return the number of devices by task and version."""
        counts: Counter[tuple[str, str]] = Counter()
        for entry in self._sets.values():
            for name in entry.tasks:
                counts[name] += entry.devices
        return dict(counts)

    def _begin(self, tasks: _Tasks) -> _Versions:
        if len(self._sets) >= _SETS_MAX or self._cells + len(tasks) > _CELLS_MAX:
            tasks = ()
        self._cells += len(tasks)
        return self._sets.setdefault(tasks, _Versions(tasks))

    def _drop(self, gone: _Versions) -> None:
        gone.devices -= 1
        if not gone.devices:
            del self._sets[gone.tasks]
            self._cells -= len(gone.tasks)
