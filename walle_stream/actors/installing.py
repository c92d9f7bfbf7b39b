"""The task sets of one partition: what is installed on its devices, and their states then.

An installation is an input as events are: it stands in the journal, at its place between the
batches, and commits with what it changes. So a recovery, which gives batches again, gives
every event to the tasks that its device had when it came.

A state follows its layout (``stateVersion``). Where a device gets a version of a task with a
later layout, the state is kept as it is beside the one that the script migrates; where it goes
back, what was kept takes the place again. One earlier layout is kept for each task.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from walle_stream.actors.partition_rows import PartitionRows
from walle_stream.actors.runs import FailurePolicy
from walle_stream.actors.task_states import TaskStates, apply_changes
from walle_stream.errors import StoreCorruptedError
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import DEFAULT_SET, InstalledTask, TaskSet
from walle_stream.vm.guest.migration import VERSION_KEY

type TasksBySet = Mapping[str, Mapping[str, InstalledTask]]
"""Tasks by name by the id of their set."""


class ProgramSource(Protocol):
    """Has the pool of VMs run what is installed. Any thread."""

    def ensure(self, task: str, installed: InstalledTask) -> None:
        """Load a program into the pool, unless it is there; blocks.

        Args:
            task: The task's name.
            installed: Which version.

        Raises:
            PackageError: Its package is not stored, or not for this interpreter.
            VmStartError: No VM can be made.
        """
        ...


class Installs(msgspec.Struct, frozen=True):
    """Question to a device host: give devices other tasks, each from its next event on."""

    sets: TasksBySet
    """Those that may be new here."""
    devices: Mapping[int, Sequence[tuple[str, str]]]
    """By partition: (device id, id of its set)."""


class Installed(msgspec.Struct):
    """The answer."""

    refused: dict[str, str] = {}
    """Devices that stay as they were, and why."""
    programs: set[str] = set()
    """All that devices of the host have now; others can go."""


class PartitionSets:
    """What is installed in one partition. One thread, the device host's."""

    def __init__(
        self,
        rows: PartitionRows,
        policy: SequencePolicy,
        default: Mapping[str, InstalledTask],
        programs: ProgramSource | None = None,
    ) -> None:
        """Take over what an opened partition has.

        Args:
            rows: The partition's rows.
            policy: How page sequences are built.
            default: The definition's tasks.
            programs: Loads others; None where nothing is installed ever.
        """
        self._rows = rows
        self._policy = policy
        self._programs = programs
        self._tasks: dict[str, Mapping[str, InstalledTask]] = {}
        self.versions: dict[str, str] = {}
        """By program."""
        self.on_error: dict[str, FailurePolicy] = {}
        """By program."""
        self.names: set[str] = set()
        """Of all tasks that some device may have."""
        self._learn(DEFAULT_SET, default)

    def find(self, set_id: str) -> TaskSet:
        """Return a set, ready to run; blocks where its programs must be loaded.

        Args:
            set_id: Of a set that is stored, or was put.

        Raises:
            StoreCorruptedError: There is none.
            PackageError: A package of it is not stored here any more.
        """
        tasks = self.tasks(set_id)
        if self._programs is not None:
            for name, task in tasks.items():
                self._programs.ensure(name, task)
        return TaskSet.of(set_id, tasks, self._policy)

    def tasks(self, set_id: str) -> Mapping[str, InstalledTask]:
        """Return the tasks of a set by name.

        Args:
            set_id: As for ``find``.

        Raises:
            StoreCorruptedError: There is none.
        """
        if set_id not in self._tasks:
            self._learn(set_id, stored_set(self._rows, set_id))
        return self._tasks[set_id]

    def put(self, sets: TasksBySet) -> None:
        """Write sets into the commit at hand, those that are new here.

        Args:
            sets: By id.
        """
        for set_id, tasks in sets.items():
            if set_id not in self._tasks:
                if self._rows.task_set(set_id) is None:
                    self._rows.put_task_set(set_id, tasks)
                self._learn(set_id, tasks)

    def programs_of(self, set_ids: Collection[str]) -> set[str]:
        """Return the programs of sets.

        Args:
            set_ids: Stored ones.
        """
        return {task.program for set_id in set_ids for task in self.tasks(set_id).values()}

    def move_states(self, device_id: str, set_id: str, states: TaskStates) -> str:
        """Let a device's states follow the layouts of its next tasks, in the commit at hand.

        Args:
            device_id: In memory.
            set_id: Of its next tasks.
            states: The partition's.

        Returns:
            Why it cannot be; nothing has changed then. Empty when it is done.
        """
        going = []
        for name, task in self.tasks(set_id).items():
            state = states.of_task(name)(device_id)
            layout = _layout_of(state)
            if not state or layout == task.state_version:
                continue
            kept = None
            if layout > task.state_version:
                kept = self._rows.kept_state(device_id, name, task.state_version)
                if not kept:
                    return (
                        f"task {name!r}: version {task.version!r} has stateVersion "
                        f"{task.state_version}, the device's state is of {layout}, and none of the "
                        "earlier layout was kept: install a version with that stateVersion"
                    )
            going.append((name, state, layout, kept))
        for name, state, layout, kept in going:
            self._rows.drop_kept_states(device_id, name)
            if kept is None:
                self._rows.keep_state(device_id, name, layout, state)
                continue
            changes: dict[str, bytes | None] = {key: None for key in state if key not in kept}
            changes.update(kept)
            apply_changes(state, changes)
            self._rows.put_task_states(name, {device_id: changes})
        return ""

    def _learn(self, set_id: str, tasks: Mapping[str, InstalledTask]) -> None:
        self._tasks[set_id] = tasks
        self.names |= tasks.keys()
        for task in tasks.values():
            self.versions[task.program] = task.version
            self.on_error[task.program] = FailurePolicy(*task.on_error)


def stored_set(rows: PartitionRows, set_id: str) -> Mapping[str, InstalledTask]:
    """Return the tasks of a stored set.

    Args:
        rows: The partition's.
        set_id: Its id.

    Raises:
        StoreCorruptedError: There is none.
    """
    tasks = rows.task_set(set_id)
    if tasks is None:
        raise StoreCorruptedError(
            f"a device has the task set {set_id!r}, which is not stored: restore the data "
            "directory from a copy"
        )
    return tasks


def _layout_of(state: Mapping[str, bytes]) -> int:
    written = state.get(VERSION_KEY)
    return 1 if written is None else int(written)
