"""The table of releases with one more release at some stage, for dry runs."""

from typing import Literal, NamedTuple

from walle_deploy.model.releases import ReleaseTable
from walle_deploy.release.commands import read_state
from walle_deploy.release.events import Superseded
from walle_deploy.release.machine import advance
from walle_deploy.release.model import Release
from walle_deploy.release.state import offer_at
from walle_deploy.store.reader import ReadTransaction


class Plan(NamedTuple):
    """A table with notes about it."""

    table: ReleaseTable
    """Table of the release's task alone; without a release, of all tasks."""
    notes: tuple[str, ...]
    """Further effects of ``create``, and reasons for it to refuse."""


class Moment(NamedTuple):
    """The stage of the release in the plan."""

    stage: Literal["beta", "gray", "full"] = "full"
    percent: float = 100.0
    """Share of the devices at stage ``gray``."""


def plan(transaction: ReadTransaction, release: Release | None, moment: Moment) -> Plan:
    """Return the table as it would be with a release.

    A task has one release in progress, so another one of the task counts as superseded. Without a
    release, the result is the whole current table.
    """
    if release is None:
        return Plan(transaction.table(), ())
    name, task = release.metadata.name, release.spec.task
    notes: list[str] = []
    table = transaction.table()
    gone, withdrawn = {name}, set(table.withdrawn.get(task, ()))
    for other in transaction.releases(task, only_open=True):
        if other.release_id == name:
            continue
        change = advance(read_state(other), Superseded(transaction.now_ms()))
        if change is not None and change.state.is_withdrawn:
            withdrawn.add(other.version)
        gone.add(other.release_id)
        notes.append(
            f"release {other.release_id!r} of {task}@{other.version} is in progress: taken as "
            "ended, as by create --supersede"
        )
    existing = transaction.release(name)
    if existing is not None and not existing.is_open:
        notes.append(f"there was a release {name!r}: create will ask for another name")
    files = {
        f"{task}@{version}": version_files
        for version, version_files in transaction.versions(task).items()
    }
    if f"{task}@{release.spec.version}" not in files:
        notes.append(f"{task}@{release.spec.version} is not published: create will ask for it")
    is_over = existing is None or not (existing.is_open or existing.is_offered)
    created_ms = transaction.now_ms() if existing is None or is_over else existing.created_ms
    others = tuple(e for e in table.releases if e.task == task and e.release_id not in gone)
    # the others are done; create compares with the newest of them
    stable = table.stable.get(task, "")
    before = others[0].version if others else stable
    offer = offer_at(release, *moment, created_ms, before)
    lost = {task: frozenset(withdrawn)} if withdrawn else {}
    own = {task: stable} if stable else {}
    return Plan(ReleaseTable(0, (*others, offer), own, files, lost), tuple(notes))
