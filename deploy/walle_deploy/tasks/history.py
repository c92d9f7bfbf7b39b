"""Lists of scenarios, tasks, versions and commits.

``walle task list`` and ``log`` read them from the copies in the cache.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.mirrors import TAGS, Mirror, open_mirror

_FIELD: Final = "%x1f"
_TAG: Final = "%00".join(
    f"%({name})"
    for name in (
        *("refname", "objectname", "objecttype", "*objectname"),
        *("taggername", "taggerdate:iso-strict", "contents:subject"),
    )
)


type _Problem = Literal["", "moved", "deleted"]
"""Change of a version in the group since it was first seen here."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A commit or a version, with its author."""

    name: str
    """Id of the commit, or name of the version."""
    commit: str
    who: str
    when: str
    """Time in ISO 8601."""
    subject: str
    """First line of the message."""
    problem: _Problem = ""
    """For a version: the change since it was first seen; the other fields are as first seen."""


class TaskEntry(msgspec.Struct, frozen=True):
    """A task of a scenario."""

    task: str
    """``SCENARIO/TASK``."""
    commit: str
    """The task's last commit."""
    versions: tuple[Entry, ...]
    """Versions, newest first; only annotated tags."""


def list_tasks(group: Group, scenario: str) -> list[TaskEntry]:
    """Return the tasks of a scenario with their versions, by name; blocks.

    Raises:
        RefNotFoundError: There is no such scenario.
        GitError: The group does not answer.
    """
    with open_mirror(group, scenario) as mirror:
        versions: dict[str, list[Entry]] = {}
        for task, entry in _versions(mirror):
            versions.setdefault(task, []).append(entry)
        return [
            TaskEntry(
                f"{scenario}/{task}",
                mirror.commit(TaskRef(scenario, task)),
                tuple(versions.get(task, ())),
            )
            for task in mirror.tasks()
        ]


def log_task(group: Group, ref: TaskRef, count: int | None = None) -> list[Entry]:
    """Return the commits of a task, or those up to a version, newest first; blocks.

    Raises:
        RefNotFoundError: There is no such task or version.
        GitError: The group does not answer.
    """
    with open_mirror(group, ref.scenario) as mirror:
        form = f"--format=%H{_FIELD}%an{_FIELD}%aI{_FIELD}%s"
        bound = [] if count is None else [f"--max-count={count}"]
        arguments = ("log", "-z", "--no-show-signature", form, *bound, mirror.commit(ref))
        text = mirror.git.run(*arguments).decode(errors="replace")
        entries = (line.split("\x1f", 3) for line in text.split("\0") if line)
        return [Entry(commit, commit, who, when, subject) for commit, who, when, subject in entries]


def _versions(mirror: Mirror) -> Iterator[tuple[str, Entry]]:
    arguments = ("for-each-ref", "--sort=-taggerdate", "--sort=-version:refname")
    text = mirror.git.run(*arguments, f"--format={_TAG}", TAGS).decode(errors="replace")
    for line in text.split("\n")[:-1]:  # splitlines would also split at other characters
        name, tag, kind, commit, who, when, subject = line.split("\0", 6)
        task, _, version = name.removeprefix(TAGS).partition("/")
        if kind == "tag" and version:
            now = mirror.refs.get(name)
            problem: _Problem = "" if now == tag else "moved" if now else "deleted"
            yield task, Entry(version, commit, who, when, subject, problem)
