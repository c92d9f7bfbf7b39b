"""Which tasks a device has: a set of versions, shared by all devices that have the same.

Most devices have the definition's tasks. Where versions are installed while a host runs,
devices differ: each has a set, and devices of one set share its trie. A set never changes;
its id follows from what is in it, so that the same set has the same id on every host.

In the data flow: ``PartitionMachine`` asks the device's set what an event wakes.
"""

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from walle_stream.stream.sequence import SequencePolicy
from walle_stream.stream.trigger import TriggerTrie

DEFAULT_SET: Final = ""
"""Id of the definition's tasks."""

_ID_BYTES: Final = 12


class InstalledTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a task, as a device has it."""

    version: str
    """Stands beside every feature."""
    triggers: tuple[tuple[str, ...], ...]
    """Each of them wakes the task."""
    program: str
    """What the pool of VMs knows it by: no two versions have the same."""
    state_version: int = 1
    """Layout of its states."""
    fields: tuple[str, ...] | None = None
    """Contents of events that the script reads; all when None."""
    pages: tuple[str, ...] | None = None
    """Only events on these pages wake it; on any page when None."""
    on_error: tuple[int, int, bool] = (1, 100, True)
    """Attempts, pause in milliseconds, whether a dead letter is left."""
    package: str = ""
    """SHA-256 of its package; empty for a task of the definition."""
    resources: Mapping[str, str] = {}
    """SHA-256 of files that only this device has, by the name that the script uses."""


class TaskSet:
    """The tasks of some devices of a partition. One thread."""

    __slots__ = ("advance", "pages", "policy", "programs", "set_id", "trie")

    def __init__(
        self,
        set_id: str,
        triggers: Mapping[str, Sequence[Sequence[str]]],
        policy: SequencePolicy,
        pages: Mapping[str, Collection[str]] | None = None,
        programs: Mapping[str, str] | None = None,
    ) -> None:
        """Build the trie.

        Args:
            set_id: See ``set_id_of``.
            triggers: For each task its conditions, each a sequence of trigger ids.
            policy: With the fields that these tasks read.
            pages: For tasks that only events on certain pages wake, these.
            programs: What the pool of VMs knows the tasks by; their names by default.
        """
        self.set_id = set_id
        self.policy = policy
        self.pages: Mapping[str, Collection[str]] = pages or {}
        self.programs = programs or {task: task for task in triggers}
        self.trie = TriggerTrie()
        for task, conditions in triggers.items():
            for condition in conditions:
                self.trie.insert(task, condition)
        self.advance = self.trie.advance

    @classmethod
    def of(
        cls, set_id: str, tasks: Mapping[str, InstalledTask], policy: SequencePolicy
    ) -> "TaskSet":
        """Make the set of installed tasks.

        Args:
            set_id: Its id.
            tasks: By name.
            policy: Of the partition; its fields become those that these tasks read.
        """
        return cls(
            set_id,
            {name: task.triggers for name, task in tasks.items()},
            msgspec.structs.replace(policy, fields=fields_of(tasks)),
            {name: frozenset(task.pages) for name, task in tasks.items() if task.pages is not None},
            {name: task.program for name, task in tasks.items()},
        )


def fields_of(tasks: Mapping[str, InstalledTask]) -> frozenset[str] | None:
    """Return the contents of events that tasks read; None for all.

    Args:
        tasks: By name.
    """
    fields: set[str] = set()
    for task in tasks.values():
        if task.fields is None:
            return None
        fields |= set(task.fields)
    return frozenset(fields)


def set_id_of(tasks: Mapping[str, InstalledTask]) -> str:
    """Return the id of a set: a digest of what is in it, never ``DEFAULT_SET``.

    Args:
        tasks: By name, in any order.
    """
    text = msgspec.json.encode(tasks, order="sorted")
    return blake2b(text, digest_size=_ID_BYTES).hexdigest()
