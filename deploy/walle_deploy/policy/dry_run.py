"""What a table of releases gives to a population, and why: nothing is sent or stored.

Devices are decided about by ``judging.choose``, one condition at a time; the index that a
release service asks gives the same (held against each other by a property test).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.releases import ReleaseTable
from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.judging import choose
from walle_deploy.policy.reasons import why_of

EXAMPLES: Final = 5
"""Devices shown for each reason."""


class Decision(NamedTuple):
    """What one device would have of one task."""

    device: str
    task: str
    version: str | None
    """None: it keeps what it has; empty: none."""
    release: str
    """By which; empty for the stable version, and where it keeps what it has."""
    why: str
    """For each release that was asked, the condition that decided."""
    has_it: bool
    """Whether the version is what the device says that it has."""


class Group(NamedTuple):
    """Devices with the same answer for the same reason."""

    task: str
    version: str | None
    release: str
    why: str
    devices: int
    have_it: int
    """Of these."""
    examples: tuple[str, ...]
    """Ids of the first ``EXAMPLES`` devices."""


def decisions(
    table: ReleaseTable, profiles: Iterable[DeviceProfile], sources: Sources, about: str = ""
) -> Iterator[Decision]:
    """Yield for each device, and each task of the table, what it would have.

    ``about`` is the release in question: it is said where another one comes before it.
    """
    tasks = {release.release_id: release.task for release in table.releases}
    for profile in profiles:
        for choice in choose(table, Facts(profile, sources, id_hash(profile.device))):
            version, task = choice.version, choice.task
            has_it = bool(task) and version is not None and profile.tasks.get(task, "") == version
            later = about if tasks.get(about) == task else ""
            why = why_of(choice, later)
            yield Decision(profile.device, task, version, choice.release_id, why, has_it)


def grouped(rows: Iterable[Decision]) -> list[Group]:
    """Return answers by what devices get and why; by task, the most devices first.

    Those that keep what they have stand at a task's end.
    """
    counts: dict[tuple[str, str | None, str, str], list[int]] = {}
    examples: dict[tuple[str, str | None, str, str], list[str]] = {}
    for row in rows:
        key = (row.task, row.version, row.release, row.why)
        count = counts.setdefault(key, [0, 0])
        count[0] += 1
        count[1] += row.has_it
        shown = examples.setdefault(key, [])
        if len(shown) < EXAMPLES:
            shown.append(row.device)
    groups = [
        Group(*key, devices, have_it, tuple(examples[key]))
        for key, (devices, have_it) in counts.items()
    ]
    return sorted(
        groups,
        key=lambda group: (group.task, group.version is None, -group.devices, group.why),
    )
