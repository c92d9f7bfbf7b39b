"""Dry runs: the versions that a table of releases gives to a population, with the reasons.

Nothing is sent or stored. ``judging.choose`` decides, one condition at a time. The index of the
release service decides the same, as a property test checks.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.releases import ReleaseTable
from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.judging import WITHDRAWN, Choice, Verdict, choose
from walle_deploy.policy.truth import Truth

EXAMPLES: Final = 5
"""Number of devices shown for each reason."""
_SYMBOLS: Final[dict[Truth, str]] = {True: "yes", False: "no", None: "not known"}


class Decision(NamedTuple):
    """The version of one task that a device would have."""

    device: str
    task: str
    version: str | None
    """None if the device keeps what it has; empty for no version."""
    release: str
    """Id of the deciding release; empty for the stable version, or if the device keeps its own."""
    why: str
    """For each release that was asked, the condition that decided."""
    has_it: bool


class Group(NamedTuple):
    """Devices with the same answer for the same reason."""

    task: str
    version: str | None
    release: str
    why: str
    devices: int
    have_it: int
    examples: tuple[str, ...]
    """Ids of the first ``EXAMPLES`` devices."""


def decisions(
    table: ReleaseTable, profiles: Iterable[DeviceProfile], sources: Sources, about: str = ""
) -> Iterator[Decision]:
    """Yield a decision for each device and each task of the table.

    ``about`` names the release in question: a reason says if another release comes before it.
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
    """Group decisions by version and reason; sorted by task, then by number of devices, descending.

    Devices that keep what they have come last in their task.
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
        groups, key=lambda group: (group.task, group.version is None, -group.devices, group.why)
    )


def why_of(choice: Choice, about: str = "") -> str:
    """Return a short reason for a device's choice.

    ``about`` is a release of the task that may not have been asked.
    """
    verdicts = dict(choice.verdicts)
    parts = [
        f"{name or 'stable version'}: {_reason_of(verdict)}"
        for name, verdict in choice.verdicts
        if verdict.truth is not True
    ]
    if WITHDRAWN in verdicts:
        parts.append(verdicts[WITHDRAWN].what)
    if choice.release_id:
        met = "all conditions are met"
        parts.append(f"{choice.release_id}: {met}" if parts else met)
        if about and about not in verdicts:
            parts[-1] += f", and it comes before {about}"
    return "; ".join(parts) or "no release of the task is offered"


def _reason_of(verdict: Verdict) -> str:
    """Return a short reason why a release admits a device or does not."""
    if verdict.truth is True:
        return "all conditions are met"
    # a false condition decides, whatever else is unknown
    for truth in (False, None):
        for part in verdict.inner:
            if part.truth is truth:
                why = "is not met" if truth is False else "is not known"
                return f"{_described(part)} {why}"
    return "a condition is not met"


def explained(verdict: Verdict, level: int = 0) -> Iterator[str]:
    """Yield a line for each condition with its truth and the device's value."""
    for part in verdict.inner:
        shown = f" (has {part.value})" if part.value else ""
        yield f"{'  ' * level}{_SYMBOLS[part.truth]:<9} {part.what}{shown}"
        yield from explained(part, level + 1)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain JSON."""
    plain: dict[str, Any] = {"what": verdict.what, "truth": verdict.truth, "found": verdict.value}
    if verdict.inner:
        plain["inner"] = [as_json(part) for part in verdict.inner]
    return plain


def _described(verdict: Verdict) -> str:
    if not verdict.inner:
        return verdict.what
    if verdict.what == "all" and len(verdict.inner) == 1:
        return _described(verdict.inner[0])
    inner = ", ".join(_described(part) for part in verdict.inner)
    return f"{verdict.what}({inner})"
