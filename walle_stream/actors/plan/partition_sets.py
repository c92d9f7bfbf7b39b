"""Task sets of one partition: the tasks installed on its devices, and the device states.

An installation is an input, as events are. It is in the journal, after the events of its commit. A
recovery, which repeats batches, thus gives every event to the tasks that its device had at that
time.

A state has a layout (``stateVersion``). When a device gets a version of a task with a later layout,
the script migrates the state, and a copy of the old state is kept. When the device goes back, the
kept state returns. One earlier layout is kept for each task. The absence of a state, or of the
task, is kept too, so that a device can always go back.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.attempts import FailurePolicy
from walle_stream.actors.turns.installing import Wanted
from walle_stream.actors.turns.task_states import TaskStates
from walle_stream.actors.turns.turn import Turn
from walle_stream.errors import StoreCorruptedError
from walle_stream.ports import InstalledTask
from walle_stream.stream.interface import Core
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.task_sets import DEFAULT_SET, Changes, SetDefinition, changed, set_id_of
from walle_stream.vm.guest.migration import VERSION_KEY
from walle_stream.vm.guest.state import merge

_NO_LAYOUT: Final = 0
"""Layout kept if a task's first version on a device has a later layout than 1."""


class ProgramSource(Protocol):
    """Loader of installed programs into the pool of VMs. Any thread."""

    def ensure(self, task: str, installed: InstalledTask) -> None:
        """Load a version of a task into the pool, unless it is loaded; blocks.

        Raises:
            PackageError: The package is not stored, or not for this interpreter.
            VmStartError: No VM can be made.
        """


class PartitionSets:
    """Tasks installed in one partition. One thread, the device host's."""

    def __init__(
        self,
        rows: PartitionRows,
        policy: SequencePolicy,
        default: Mapping[str, InstalledTask],
        programs: ProgramSource | None = None,
        reported_as: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        """Use the sets of an opened partition, with the definition's tasks by name.

        Without ``programs`` no task is ever installed. ``reported_as`` has the names and versions
        of the definition's tasks in reports.
        """
        self._rows = rows
        self._policy = policy
        self._programs = programs
        self._definition = default
        self._changes: dict[str, Changes] = {}
        self.versions: dict[str, str] = {}
        """Versions by program."""
        self.on_error: dict[str, FailurePolicy] = {}
        """Failure policies by program."""
        self.labels: dict[str, tuple[str, str]] = dict(reported_as or {})
        """Name and version in reports, by program; for installed ones, those of their origin."""
        self.names: set[str] = set()
        """Names of all tasks that some device may have."""
        self._learn(DEFAULT_SET, {})

    def find(self, set_id: str) -> SetDefinition:
        """Return a set, stored or new, ready to run; blocks while its programs are loaded.

        Raises:
            StoreCorruptedError: The set is not stored.
            PackageError: A package of the set is no longer stored here.
        """
        changes = self.changes(set_id)
        if self._programs is not None:
            for name, task in changes.items():
                if task is not None:
                    self._programs.ensure(name, task)
        return SetDefinition.of(changes, self._definition, self._policy)

    def changes(self, set_id: str) -> Changes:
        """Return the changes of a set to the definition's tasks.

        Raises:
            StoreCorruptedError: The set is not stored.
        """
        if set_id not in self._changes:
            self._learn(set_id, stored_changes(self._rows, set_id))
        return self._changes[set_id]

    def after(self, set_id: str, wanted: Wanted) -> str:
        """Return the set that follows ``set_id``; a new set goes into the current commit."""
        changes = dict(self.changes(set_id))
        for name, task in wanted.items():
            if isinstance(task, InstalledTask) or (task is None and name in self._definition):
                changes[name] = task
            else:
                changes.pop(name, None)
        changed_set = set_id_of(changes)
        if changed_set not in self._changes:
            if self._rows.task_set(changed_set) is None:
                self._rows.put_task_set(changed_set, changes)
            self._learn(changed_set, changes)
        return changed_set

    def programs_of(self, set_ids: Collection[str]) -> dict[str, InstalledTask]:
        """Return the tasks of stored sets by program."""
        tasks = [task for set_id in set_ids for task in self.tasks(set_id).values()]
        return {task.program: task for task in tasks}

    def move(self, turn: Turn, machine: Core, states: TaskStates) -> None:
        """Give devices their new sets in the current commit.

        The machine has these devices in memory. A device whose state cannot follow is removed from
        the turn, and refused.
        """
        counts, installs = dict(turn.head.task_sets), []
        for device_id, set_id in turn.installs:
            old = machine.task_set(device_id)
            problem = self._move_states(device_id, old, set_id, states, turn)
            if problem:
                turn.refused[device_id] = problem
                continue
            machine.install(device_id, set_id)
            installs.append((device_id, set_id))
            counts[old] = counts.get(old, 0) - 1
            counts[set_id] = counts.get(set_id, 0) + 1
        turn.installs = installs
        turn.head.task_sets = {name: n for name, n in counts.items() if name and n > 0}

    def _move_states(
        self, device_id: str, before: str, set_id: str, states: TaskStates, turn: Turn
    ) -> str:
        """Migrate a device's states to the layouts of its next tasks, in the current commit.

        Returns the reason of a refusal, without any change; an empty string after success.
        """
        going = []
        old = self.tasks(before)
        for name, task in self.tasks(set_id).items():
            old_task = old.get(name)
            if (
                old_task is not None
                and old_task.package
                and old_task.state_version == task.state_version
            ):
                continue  # any state to keep was kept when this layout was installed
            state = states.of_task(name)(device_id)
            layout = _layout_of(state)
            if not state:
                # the absence of a state is kept as well; for a new task it is valid for any layout
                layout = old[name].state_version if name in old else _NO_LAYOUT
                is_later = max(layout, 1) < task.state_version
                state = {VERSION_KEY: b"%d" % layout} if is_later else {}
            if not state or layout == task.state_version:
                continue
            kept = None
            if layout > task.state_version:
                kept = self._rows.kept_state(device_id, name, task.state_version)
                kept = kept or self._rows.kept_state(device_id, name, _NO_LAYOUT)
                if not kept:
                    return (
                        f"task {name!r}: version {task.version!r} has stateVersion "
                        f"{task.state_version}, the device's state has {layout}, and no state of "
                        "the earlier layout was kept: install a version with that stateVersion"
                    )
            going.append((name, state, layout, kept))
        for name, state, layout, kept in going:
            self._rows.drop_kept_states(device_id, name)
            if kept is None:
                self._rows.keep_state(device_id, name, layout, state)
                continue
            back = {} if kept.keys() == {VERSION_KEY} else kept  # there was no state
            changes: dict[str, bytes | None] = {key: None for key in state if key not in back}
            changes.update(back)
            merge(state, changes)
            turn.changed_states.append((name, {device_id: changes}))
        return ""

    def tasks(self, set_id: str) -> Mapping[str, InstalledTask]:
        """Return the tasks of a stored set by name."""
        return changed(self._definition, self.changes(set_id))

    def _learn(self, set_id: str, changes: Changes) -> None:
        self._changes[set_id] = changes
        tasks = changed(self._definition, changes)
        self.names |= tasks.keys()
        for task in tasks.values():
            self.versions[task.program] = task.version
            self.on_error[task.program] = FailurePolicy(*task.on_error)
            if task.origin:
                name, _, version = task.origin.rpartition("@")
                self.labels[task.program] = (name, version)


def stored_changes(rows: PartitionRows, set_id: str) -> Changes:
    """Return the changes of a stored set to the definition's tasks.

    Raises:
        StoreCorruptedError: The set is not stored.
    """
    changes = rows.task_set(set_id) if set_id else {}
    if changes is None:
        raise StoreCorruptedError(
            f"a device has the task set {set_id!r}, which is not stored: restore the data "
            "directory from a copy"
        )
    return changes


def _layout_of(state: Mapping[str, bytes]) -> int:
    written = state.get(VERSION_KEY)
    return 1 if written is None else int(written)
