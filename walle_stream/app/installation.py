"""Installing versions of tasks on devices of a running host, without stopping it.

Place in the flow: the deployment's agent calls ``Installation.install``; the device hosts take
it between two commits, each partition in a commit of its own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal

from walle_stream.actors.actor import ActorRef
from walle_stream.actors.installing import GetTasks, Installed, Installs
from walle_stream.app.installed import InstalledPrograms, NewVersion
from walle_stream.errors import PackageError
from walle_stream.stream.task_sets import (
    DEFAULT_SET,
    Changes,
    InstalledTask,
    changed,
    set_id_of,
)

type Change = NewVersion | Literal["definition"] | None
"""What becomes of a task: another version, the definition's own one, or nothing: it goes."""


class Installation:
    """Installs on the devices of one run. Thread-safe: one installation at a time."""

    def __init__(
        self,
        hosts: Sequence[ActorRef],
        ask: Callable[[ActorRef, Any], Any],
        programs: InstalledPrograms,
        definition: Mapping[str, InstalledTask],
        partition_of: Callable[[str], int],
    ) -> None:
        """Begin; nothing is asked yet.

        Args:
            hosts: Device hosts.
            ask: Asks one of them a question.
            programs: Of this process.
            definition: Its tasks by name.
            partition_of: Tells a device's partition.
        """
        self._hosts = hosts
        self._ask = ask
        self._programs = programs
        self._definition = definition
        self._partition_of = partition_of
        self._lock = Lock()

    def tasks_of(self, device_ids: Iterable[str]) -> dict[str, Mapping[str, InstalledTask]]:
        """Return which tasks devices have, by name; waits for the hosts' next commits.

        Args:
            device_ids: Of this run.
        """
        found = self._changes_of(device_ids)
        return {device_id: changed(self._definition, each) for device_id, each in found.items()}

    def install(self, changes: Mapping[str, Mapping[str, Change]]) -> dict[str, str]:
        """Change tasks of devices, each from its next event on; blocks until it is committed.

        Every device has all of its changes or none. VMs are made before the hosts are told,
        so that events wait for no more than a commit.

        Args:
            changes: By task name by device id.

        Returns:
            The devices that stay as they were, and why.

        Raises:
            PackageError: A package cannot be installed here; nothing has changed.
            StoreFullError: The disk is full; nothing has changed.
            WalleError: A host failed: what it has committed stays, install again.
        """
        with self._lock:
            stored = self._store(changes)
            sets: dict[str, Changes] = {}
            devices: dict[str, tuple[str, str]] = {}
            for device_id, before in self._changes_of(changes).items():
                after = self._after(before, changes[device_id], stored)
                set_id = set_id_of(after)
                if set_id != DEFAULT_SET:
                    sets[set_id] = after
                devices[device_id] = (device_id, set_id)
            question = Installs(sets, self._by_partition(devices))
            refused = dict.fromkeys(changes, "no host of this run has its partition: install again")
            programs: dict[str, InstalledTask] = {}
            for host in self._hosts:
                answer: Installed = self._ask(host, question)
                for device_id in answer.devices:
                    del refused[device_id]
                refused |= answer.refused
                programs |= answer.programs
            self._programs.retain(programs)
            return refused

    def _store(self, changes: Mapping[str, Mapping[str, Change]]) -> dict[int, InstalledTask]:
        stored: dict[int, InstalledTask] = {}
        for tasks in changes.values():
            for name, change in tasks.items():
                if isinstance(change, NewVersion) and id(change) not in stored:
                    found, task = self._programs.store(change)
                    if found != name:
                        raise PackageError(
                            f"a package of the task {found!r} was given for {name!r}: install it "
                            "under its own name"
                        )
                    self._programs.ensure(name, task)
                    stored[id(change)] = task
        return stored

    def _changes_of(self, device_ids: Iterable[str]) -> dict[str, Changes]:
        question = GetTasks(self._by_partition({each: each for each in device_ids}))
        found: dict[str, Changes] = {}
        for host in self._hosts:
            found |= self._ask(host, question)
        return found

    def _after(
        self, before: Changes, changes: Mapping[str, Change], stored: Mapping[int, InstalledTask]
    ) -> Changes:
        after = dict(before)
        for name, change in changes.items():
            if isinstance(change, NewVersion):
                after[name] = stored[id(change)]
            elif change is None and name in self._definition:
                after[name] = None
            else:
                after.pop(name, None)
        return after

    def _by_partition[T](self, devices: Mapping[str, T]) -> dict[int, list[T]]:
        found: dict[int, list[T]] = {}
        for device_id, each in devices.items():
            found.setdefault(self._partition_of(device_id), []).append(each)
        return found
