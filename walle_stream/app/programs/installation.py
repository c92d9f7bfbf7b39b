"""Installation of task versions on devices of a running host, without a stop.

The deployment's agent calls ``Installation.install``. The device hosts apply it between two
commits, each partition in a commit of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, Literal

from walle_stream.actors.actor import ActorRef
from walle_stream.actors.turns.installing import (
    GetTasks,
    Installed,
    Installs,
    Refusal,
    Refusals,
    Wanted,
)
from walle_stream.app.programs.installed import InstalledPrograms, NewVersion
from walle_stream.errors import PackageError
from walle_stream.ports import InstalledTask
from walle_stream.stream.task_sets import Changes, changed

type Change = NewVersion | Literal["definition"] | None
"""Change of a task: a new version, the definition's version, or (None) its removal."""


NO_HOST: Final = "no host of this run owns its partition: install again"
"""Reason of a device that stays unchanged while another process takes its partition."""


class Installation:
    """Installer for the devices of one run. Thread-safe: one installation at a time."""

    def __init__(
        self,
        hosts: Sequence[ActorRef],
        ask: Callable[[ActorRef, Any], Any],
        programs: InstalledPrograms,
        definition: Mapping[str, InstalledTask],
        partition_of: Callable[[str], int],
    ) -> None:
        """Keep the hosts without asking them anything yet."""
        self._hosts = hosts
        self._ask = ask
        self._programs = programs
        self._definition = definition
        self._partition_of = partition_of
        self._lock = Lock()

    def tasks_of(self, device_ids: Iterable[str]) -> dict[str, Mapping[str, InstalledTask]]:
        """Return the tasks of each device, by name; waits for the hosts' turns."""
        question = GetTasks(self._by_partition({device_id: device_id for device_id in device_ids}))
        by_device: dict[str, Changes] = {}
        for host in self._hosts:
            by_device |= self._ask(host, question)
        return {
            device_id: changed(self._definition, changes)
            for device_id, changes in by_device.items()
        }

    def report_refusal(self, device_id: str, task: str, version: str, error: str) -> None:
        """Report that a device refused a version, as a failed run of it; blocks for a turn.

        A pipeline without ``spec.reports`` reports nothing. The cloud knows the task as
        ``SCENARIO/TASK``.
        """
        refusal = Refusal(device_id, task, version, error)
        message = Refusals(self._by_partition({device_id: refusal}))
        for host in self._hosts:
            self._ask(host, message)

    def install(self, changes: Mapping[str, Mapping[str, Change]]) -> dict[str, str]:
        """Change tasks of devices, each from its next event on; blocks until the commit.

        A device gets all of its changes or none. VMs are made before the hosts are told, so that
        events wait for a commit at most. ``changes`` are by device id, then by task. Returns the
        devices that stay unchanged, with the reason.

        Raises:
            PackageError: A package cannot be installed here; nothing has changed.
            StoreFullError: The disk is full; nothing has changed.
            WalleError: A host failed: its committed changes stay; install again.
        """
        with self._lock:
            wanted, devices = self._wanted(changes)
            question = Installs(wanted, self._by_partition(devices))
            refused = dict.fromkeys(changes, NO_HOST)
            programs: dict[str, InstalledTask] = {}
            for host in self._hosts:
                answer: Installed = self._ask(host, question)
                for device_id in answer.devices:
                    del refused[device_id]
                refused |= answer.refused
                programs |= answer.programs
            self._programs.retain(programs)
            return refused

    def _wanted(
        self, changes: Mapping[str, Mapping[str, Change]]
    ) -> tuple[list[Wanted], dict[str, tuple[str, int]]]:
        """Store new versions; return the distinct change sets, and the set of each device."""
        stored: dict[int, InstalledTask] = {}
        wanted: list[Wanted] = []
        known: dict[tuple[object, ...], int] = {}
        devices: dict[str, tuple[str, int]] = {}
        for device_id, tasks in changes.items():
            same = tuple((name, id(change)) for name, change in tasks.items())
            if same not in known:
                known[same] = len(wanted)
                wanted.append(
                    {name: self._stored(name, change, stored) for name, change in tasks.items()}
                )
            devices[device_id] = (device_id, known[same])
        return wanted, devices

    def _stored(
        self, name: str, change: Change, stored: dict[int, InstalledTask]
    ) -> InstalledTask | Literal["definition"] | None:
        if not isinstance(change, NewVersion):
            return change
        if id(change) not in stored:
            found, task = self._programs.store(change)
            if found != name:
                raise PackageError(
                    f"the package is of the task {found!r}, not of {name!r}: install it "
                    "under its own name"
                )
            self._programs.ensure(name, task)
            stored[id(change)] = task
        return stored[id(change)]

    def _by_partition[T](self, devices: Mapping[str, T]) -> dict[int, list[T]]:
        by_partition: dict[int, list[T]] = {}
        for device_id, item in devices.items():
            by_partition.setdefault(self._partition_of(device_id), []).append(item)
        return by_partition
