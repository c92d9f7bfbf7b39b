"""Installing versions of tasks on devices of a running host, without stopping it.

Place in the flow: the deployment's agent calls ``Installation.install``; the device hosts take
it between two commits, each partition in a commit of its own.
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
"""What becomes of a task: another version, the definition's own one, or nothing: it goes."""


NO_HOST: Final = "no host of this run has its partition: install again"
"""Why a device stays as it was while another process is about to have it."""


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
        """Begin; nothing is asked yet."""
        self._hosts = hosts
        self._ask = ask
        self._programs = programs
        self._definition = definition
        self._partition_of = partition_of
        self._lock = Lock()

    def tasks_of(self, device_ids: Iterable[str]) -> dict[str, Mapping[str, InstalledTask]]:
        """Return which tasks devices have, by name; waits for the hosts' turns."""
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
        """Change tasks of devices, each from its next event on; blocks until it is committed.

        Every device has all of its changes or none. VMs are made before the hosts are told, so that
        events wait for no more than a commit. Changes are by device id, then by task. Returns the
        devices that stay as they were, and why.

        Raises:
            PackageError: A package cannot be installed here; nothing has changed.
            StoreFullError: The disk is full; nothing has changed.
            WalleError: A host failed: what it has committed stays, install again.
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
        """Store what is new; return what devices get, each once, and which of it each gets."""
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
                    f"a package of the task {found!r} was given for {name!r}: install it "
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
