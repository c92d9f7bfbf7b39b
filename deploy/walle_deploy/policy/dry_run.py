"""What a release would do to a population: who would get what, and why, before anybody does.

Nothing is sent or stored. The population is a file of profiles, a JSON object per line, with
the keys that devices send (``device``, ``app``, ``appv``, ``os``, ...).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.releases import ActiveRelease
from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import id_hash
from walle_deploy.policy.judging import Verdict, judge_release
from walle_deploy.policy.truth import Truth
from walle_stream.errors import SpecFileError

EXAMPLES: Final = 5
"""Devices shown for each reason."""

_LINE_MAX: Final = 65_536
_SYMBOLS: Final[dict[Truth, str]] = {True: "yes", False: "no", None: "not known"}
_decoder: Final = msgspec.json.Decoder(DeviceProfile)


class Group(NamedTuple):
    """Devices with the same answer for the same reason."""

    gets_it: bool
    reason: str
    """The first condition that is not met, or what the device is in by."""
    devices: int
    examples: tuple[str, ...]
    """Ids of the first ``EXAMPLES`` devices."""


class DryRun(NamedTuple):
    """What became of a population."""

    devices: int
    would_get: int
    has_it: int
    """Of these, that have the version already."""
    groups: tuple[Group, ...]
    """Who gets it first, then by number of devices."""


def read_population(path: Path) -> Iterator[DeviceProfile]:
    """Yield the profiles of a file.

    Args:
        path: JSON Lines.

    Raises:
        SpecFileError: A line is no profile; the message names file and line.
        OSError: It cannot be read.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(_LINE_MAX), b""), 1):
            if not line.strip():
                continue
            try:
                yield _decoder.decode(line)
            except (msgspec.MsgspecError, ValueError) as error:
                raise SpecFileError(
                    f"{path}:{number}:1: no profile of a device: {error}", str(path), number, 1
                ) from error


def dry_run(release: ActiveRelease, profiles: Iterable[DeviceProfile], sources: Sources) -> DryRun:
    """Judge a release for a population.

    Args:
        release: At the stage that is asked about.
        profiles: Of the population.
        sources: For policies that look into files.
    """
    total = in_count = has_count = 0
    counts: Counter[tuple[bool, str]] = Counter()
    examples: dict[tuple[bool, str], list[str]] = {}
    for profile in profiles:
        verdict = judge_release(release, Facts(profile, sources, id_hash(profile.device)))
        gets_it = verdict.truth is True
        total += 1
        in_count += gets_it
        has_count += gets_it and profile.tasks.get(release.task) == release.version
        key = (gets_it, reason_of(verdict))
        counts[key] += 1
        shown = examples.setdefault(key, [])
        if len(shown) < EXAMPLES:
            shown.append(profile.device)
    groups = [
        Group(gets_it, reason, count, tuple(examples[gets_it, reason]))
        for (gets_it, reason), count in counts.items()
    ]
    groups.sort(key=lambda group: (not group.gets_it, -group.devices, group.reason))
    return DryRun(total, in_count, has_count, tuple(groups))


def reason_of(verdict: Verdict) -> str:
    """Return in a few words why a device gets a release, or does not.

    Args:
        verdict: Of ``judge_release``.
    """
    if verdict.truth is True:
        return "all conditions are met"
    # what is false decides, whatever is not known besides
    for truth in (False, None):
        for each in verdict.inner:
            if each.truth is truth:
                why = "is not met" if truth is False else "is not known of it"
                return f"{_described(each)} {why}"
    return "a condition is not met"


def explained(verdict: Verdict, level: int = 0) -> Iterator[str]:
    """Yield a line for each condition: whether it is met, and what the device has.

    Args:
        verdict: Of a release or policy.
        level: Of indentation.
    """
    for each in verdict.inner:
        found = f" (has {each.found})" if each.found else ""
        yield f"{'  ' * level}{_SYMBOLS[each.truth]:<9} {each.what}{found}"
        yield from explained(each, level + 1)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as plain JSON.

    Args:
        verdict: Of a release or policy.
    """
    made: dict[str, Any] = {"what": verdict.what, "truth": verdict.truth, "found": verdict.found}
    if verdict.inner:
        made["inner"] = [as_json(each) for each in verdict.inner]
    return made


def _described(verdict: Verdict) -> str:
    if not verdict.inner:
        return verdict.what
    if verdict.what == "all" and len(verdict.inner) == 1:
        return _described(verdict.inner[0])
    inner = ", ".join(_described(each) for each in verdict.inner)
    return f"{verdict.what}({inner})"
