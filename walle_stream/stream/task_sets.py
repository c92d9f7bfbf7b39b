"""Task sets: the versions of tasks on a device, shared by all devices with the same versions.

Most devices have the definition's tasks. If versions are installed while a host runs, devices
differ: each has a set, and devices of one set share its trie. A set is stored as its changes of
the definition's tasks, so that a new task of the definition reaches all devices. A set is
immutable. Its id is a digest of its contents, so the same set has the same id on every host.

Place in the data flow: ``PartitionMachine`` asks the device's set for the tasks that an event
wakes.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import msgspec

from walle_stream.ports import InstalledTask
from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.trigger import Cursor, TriggerTrie

DEFAULT_SET: Final = ""
"""Id of the definition's tasks."""

_ID_BYTES: Final = 12


type Changes = Mapping[str, InstalledTask | None]
"""Changes of the definition's tasks by name: another version, a further task, or None for a
removed task."""


class SetDefinition(msgspec.Struct, frozen=True):
    """Tasks and policy of the devices of a set."""

    triggers: Mapping[str, tuple[tuple[str, ...], ...]]
    """Conditions by task, each a sequence of trigger ids (event or page ids)."""
    policy: SequencePolicy
    """Rules for page sequences, with the fields that these tasks read."""
    pages: Mapping[str, frozenset[str]] = {}
    """Pages whose events wake a task, for tasks that not all pages wake."""
    programs: Mapping[str, str] = {}
    """Names of tasks in the pool of VMs, if they differ from the tasks' names."""

    @classmethod
    def of(
        cls, changes: Changes, definition: Mapping[str, InstalledTask], policy: SequencePolicy
    ) -> "SetDefinition":
        """Describe a set; the policy's fields are extended by those that its own tasks read."""
        own = fields_of({name: task for name, task in changes.items() if task is not None})
        fields = None if own is None or policy.fields is None else policy.fields | own
        tasks = changed(definition, changes)
        return cls(
            {name: task.triggers for name, task in tasks.items()},
            msgspec.structs.replace(policy, fields=fields),
            {name: frozenset(task.pages) for name, task in tasks.items() if task.pages is not None},
            {name: task.program for name, task in tasks.items()},
        )


class TaskSet:
    """The tasks of some devices of a partition, for one thread."""

    __slots__ = ("alone", "ids", "pages", "policy", "programs", "set_id", "trie")

    def __init__(self, set_id: str, definition: SetDefinition) -> None:
        """Build the trie; ``set_id_of`` gives the id."""
        self.set_id = set_id
        self.policy = definition.policy
        self.pages = definition.pages
        self.programs = {task: definition.programs.get(task, task) for task in definition.triggers}
        self.trie = TriggerTrie()
        for task, conditions in definition.triggers.items():
            for condition in conditions:
                self.trie.insert(task, condition)
        self.ids = self.trie.ids
        self.alone: dict[str, tuple[tuple[str, str], ...]] = {}
        """Woken tasks by event id, for a page that no condition names, if no match is ongoing
        and none begins. ``advance`` fills it."""

    def advance(
        self, cursor: Cursor, event_id: str, page_id: str
    ) -> tuple[Cursor, tuple[tuple[str, str], ...]]:
        """Take an event of a device; return the new cursor and each woken (task, program)."""
        after, fired = self.trie.advance(cursor, event_id, page_id)
        pages, programs = self.pages, self.programs
        woken = tuple(
            (name, programs[name]) for name in fired if name not in pages or page_id in pages[name]
        )
        ids = self.ids
        # only ids of conditions, because the number of other ids has no bound
        if not (cursor or after or pages or page_id in ids) and event_id in ids:
            self.alone[event_id] = woken
        return after, woken


def changed(definition: Mapping[str, InstalledTask], changes: Changes) -> dict[str, InstalledTask]:
    """Return the tasks of a set, by name."""
    return {name: task for name, task in {**definition, **changes}.items() if task is not None}


def fields_of(tasks: Mapping[str, InstalledTask]) -> frozenset[str] | None:
    """Return the contents of events that tasks read; None for all."""
    fields: set[str] = set()
    for task in tasks.values():
        if task.fields is None:
            return None
        fields |= set(task.fields)
    return frozenset(fields)


def set_id_of(changes: Changes) -> str:
    """Return the id of a set: a digest of its changes, or ``DEFAULT_SET`` without changes."""
    if not changes:
        return DEFAULT_SET
    text = msgspec.json.encode(changes, order="sorted")
    return blake2b(text, digest_size=_ID_BYTES).hexdigest()
