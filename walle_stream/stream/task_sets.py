"""Which tasks a device has: a set of versions, shared by all devices that have the same.

Most devices have the definition's tasks. Where versions are installed while a host runs,
devices differ: each has a set, and devices of one set share its trie. A set is kept as what
it changes of the definition's tasks, so that a task that a definition adds comes to all
devices. It never changes; its id follows from what is in it, so that the same set has the same
id on every host.

In the data flow: ``PartitionMachine`` asks the device's set what an event wakes.
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
"""What a set changes of the definition's tasks, by name: another version, a further task, or
None for a task that is not there."""


class SetDefinition(msgspec.Struct, frozen=True):
    """What the devices of a set have."""

    triggers: Mapping[str, tuple[tuple[str, ...], ...]]
    """For each task its conditions, each a sequence of trigger ids (event or page ids)."""
    policy: SequencePolicy
    """How page sequences are built, with the fields that these tasks read."""
    pages: Mapping[str, frozenset[str]] = {}
    """For tasks that only events on certain pages wake, these."""
    programs: Mapping[str, str] = {}
    """What the pool of VMs knows the tasks by, where that is not their names."""

    @classmethod
    def of(
        cls, changes: Changes, definition: Mapping[str, InstalledTask], policy: SequencePolicy
    ) -> "SetDefinition":
        """Describe a set; the fields that its own tasks read come to the policy's."""
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
    """The tasks of some devices of a partition. One thread."""

    __slots__ = ("alone", "ids", "pages", "policy", "programs", "set_id", "trie")

    def __init__(self, set_id: str, definition: SetDefinition) -> None:
        """Build the trie; for the id see ``set_id_of``."""
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
        """By event id: what such an event wakes on a page that no condition names, where no
        match is ongoing and none begins. ``advance`` fills it."""

    def advance(
        self, cursor: Cursor, event_id: str, page_id: str
    ) -> tuple[Cursor, tuple[tuple[str, str], ...]]:
        """Take an event of a device; return its new cursor and the (task, program) it wakes."""
        after, fired = self.trie.advance(cursor, event_id, page_id)
        pages, programs = self.pages, self.programs
        woken = tuple(
            (name, programs[name]) for name in fired if name not in pages or page_id in pages[name]
        )
        ids = self.ids
        # ids that no condition has would have no end
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
    """Return the id of a set: a digest of its changes; none are ``DEFAULT_SET``."""
    if not changes:
        return DEFAULT_SET
    text = msgspec.json.encode(changes, order="sorted")
    return blake2b(text, digest_size=_ID_BYTES).hexdigest()
