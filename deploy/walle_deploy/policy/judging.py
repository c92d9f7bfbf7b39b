"""Policies evaluated one condition at a time, with reasons: the definition of their meaning.

This evaluation is slow and plain. Dry runs show its results, and tests compare the fast index with
it.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from walle_deploy.model.releases import ActiveRelease, ReleaseTable
from walle_deploy.policy.facts import Facts
from walle_deploy.policy.hashing import MASK, is_within, policy_salt, salt_key, share_limit
from walle_deploy.policy.model import IdFile, Policy
from walle_deploy.policy.truth import Truth, all_of, any_of, negated
from walle_deploy.policy.versions import parse_memory_range, parse_version_range, try_version

WITHDRAWN: Final = "(withdrawn)"
"""Replaces a release's id if the device has a version that it must lose."""

_ALL: Final = 100
_SHOWN_MAX: Final = 5


class Verdict(NamedTuple):
    """The result of a policy or of one of its conditions."""

    what: str
    """The condition, such as ``os in android``; or ``all``, ``any``, ``not`` of the inner ones."""
    truth: Truth
    value: str = ""
    """The device's value."""
    inner: tuple["Verdict", ...] = ()


class Choice(NamedTuple):
    """The version of one task that a device is to have, with the reasons."""

    task: str
    version: str | None
    """None if the device keeps what it has."""
    release_id: str
    """Empty for the task's stable version."""
    verdicts: tuple[tuple[str, Verdict], ...]
    """Verdicts by release id in the order of the questions; the id is empty for the stable version.
    ``WITHDRAWN`` is last if the device has a withdrawn version that no release replaces."""


def judge(policy: Policy, facts: Facts, salt: str) -> Verdict:
    """Judge a policy for a device.

    The policy's own share has another order than the gray steps, derived from ``salt``.
    """
    inner = tuple(_conditions(policy, facts, salt))
    return Verdict("all", all_of([verdict.truth for verdict in inner]), "", inner)


def judge_release(
    release: ActiveRelease, facts: Facts, interpreters: Sequence[str] = ()
) -> Verdict:
    """Judge whether a release admits a device by its stage, its policy and its interpreter.

    Without ``interpreters``, any interpreter suffices.
    """
    inner = [_stage(release, facts)]
    if interpreters:
        interpreter = facts.profile.interpreter
        # a device that reports no interpreter finds out at the installation
        what = f"it was checked with {_shown(interpreters)}"
        inner.append(Verdict(what, not interpreter or interpreter in interpreters, interpreter))
    policy = judge(Policy.of(release.policy), facts, release.salt)
    truth = all_of([verdict.truth for verdict in (*inner, policy)])
    return Verdict("all", truth, "", (*inner, *policy.inner))


def choose(table: ReleaseTable, facts: Facts) -> Iterator[Choice]:
    """Yield the choice for a device for each task of a table."""
    for task, releases in releases_by_task(table).items():
        verdicts: list[tuple[str, Verdict]] = []
        version, release_id = None, ""
        for release in releases:
            code = table.interpreters(task, release.version)
            verdicts.append((release.release_id, judge_release(release, facts, code)))
            if verdicts[-1][1].truth:
                version, release_id = release.version, release.release_id
                break
        has = facts.profile.tasks.get(task, "")
        if version is None and has in table.withdrawn.get(task, ()):
            version = ""
            verdicts.append((WITHDRAWN, Verdict(f"{has} was withdrawn", truth=True)))
        yield Choice(task, version, release_id, tuple(verdicts))


def releases_by_task(table: ReleaseTable) -> dict[str, list[ActiveRelease]]:
    """Return the releases of each task in the order of the questions.

    The stable version is last, as a full release without an id. A task with only withdrawn
    versions has an empty list.
    """
    by_task: dict[str, list[ActiveRelease]] = {}
    for release in sorted(table.releases, key=lambda r: (-r.priority, -r.created_ms, r.release_id)):
        by_task.setdefault(release.task, []).append(release)
    for task, version in table.stable.items():
        by_task.setdefault(task, []).append(ActiveRelease("", task, version, "full"))
    for task in table.withdrawn:
        by_task.setdefault(task, [])
    return by_task


def _stage(release: ActiveRelease, facts: Facts) -> Verdict:
    match release.stage:
        case "beta":
            is_in = facts.profile.device in release.devices
            what = f"beta: one of {len(release.devices)} devices"
            return Verdict(what, is_in, facts.profile.device)
        case "gray" | "full" if release.stage == "gray" or release.percent < _ALL:
            share = _share(release.stage, release.percent, release.salt, facts)
            if facts.profile.device in release.devices:
                named = Verdict("named: tried it in the beta", truth=True)
                return Verdict("any", any_of([named.truth, share.truth]), "", (named, share))
            return share
        case _:
            return Verdict("full: every device", truth=True)


def _share(name: str, percent: float, salt: str, facts: Facts) -> Verdict:
    key = salt_key(salt)
    position = (facts.device_hash * key & MASK) / MASK * 100
    is_in = is_within(facts.device_hash, key, share_limit(percent))
    return Verdict(f"{name}: the first {percent:g} %", is_in, f"at {position:.4f} %")


def _conditions(policy: Policy, facts: Facts, salt: str) -> Iterator[Verdict]:
    yield from _of_device(policy, facts, salt)
    yield from _of_user(policy, facts)
    for part in policy.all_:
        yield judge(part, facts, salt)
    if policy.any_ is not None:
        inner = tuple(judge(part, facts, salt) for part in policy.any_)
        yield Verdict("any", any_of([verdict.truth for verdict in inner]), "", inner)
    negative = [("exclude", part) for part in policy.exclude]
    if policy.not_ is not None:
        negative.append(("not", policy.not_))
    for name, refused in negative:
        verdict = judge(refused, facts, salt)
        yield Verdict(name, negated(verdict.truth), "", verdict.inner)


def _of_device(policy: Policy, facts: Facts, salt: str) -> Iterator[Verdict]:
    profile = facts.profile
    for name, wanted, value in (
        ("app", policy.app, profile.app),
        ("os", policy.os, profile.os),
        ("performance", policy.performance, profile.performance),
        ("interpreter", policy.interpreter, profile.interpreter),
    ):
        if wanted is not None:
            yield _verdict(f"{name} is {_shown(wanted)}", value, value in wanted)
    for name, range_, value in (
        ("appVersion", policy.app_version, profile.app_version),
        ("osVersion", policy.os_version, profile.os_version),
    ):
        if range_ is not None:
            version = try_version(value)
            is_in = version is not None and parse_version_range(range_)(version)
            yield Verdict(f"{name} {range_}", is_in if version is not None else None, value)
    if policy.model is not None:
        is_in = any(fnmatchcase(profile.model, pattern) for pattern in policy.model)
        yield _verdict(f"model is {_shown(policy.model)}", profile.model, is_in)
    if policy.memory is not None:
        is_in = parse_memory_range(policy.memory)(profile.memory_mb)
        shown = f"{profile.memory_mb} MiB" if profile.memory_mb else ""
        yield _verdict(f"memory {policy.memory}", shown, is_in)
    if policy.percent is not None:
        own = policy.salt if policy.salt is not None else policy_salt(salt)
        yield _share("percent", policy.percent, own, facts)
    yield from _of_ids("device", policy.devices, profile.device, facts)


def _of_user(policy: Policy, facts: Facts) -> Iterator[Verdict]:
    known = facts.attributes
    if policy.age_band is not None:
        is_in = known.age_band in policy.age_band
        yield _verdict(f"ageBand is {_shown(policy.age_band)}", known.age_band, is_in)
    if policy.region is not None:
        is_in = any(fnmatchcase(known.region, pattern) for pattern in policy.region)
        yield _verdict(f"region is {_shown(policy.region)}", known.region, is_in)
    if policy.interest_tags is not None:
        is_in = not known.interest_tags.isdisjoint(policy.interest_tags)
        shown = ", ".join(sorted(known.interest_tags))
        yield _verdict(f"interestTags has {_shown(policy.interest_tags)}", shown, is_in)
    yield from _of_ids("user", policy.users, facts.profile.user, facts)


def _of_ids(
    what: str, ids: tuple[str, ...] | IdFile | None, name: str, facts: Facts
) -> Iterator[Verdict]:
    if isinstance(ids, IdFile):
        known = facts.sources.ids(ids.file).known
        hashed = facts.device_hash if what == "device" else facts.user_hash
        # a device without a user is in no list of users
        is_in = None if known is None else bool(name) and known.has(hashed)
        yield Verdict(f"{what} in {ids.file.name}", is_in, name)
    elif ids is not None:
        yield Verdict(f"{what} is {_shown(ids)}", name in ids, name)


def _verdict(what: str, value: str, is_met: bool) -> Verdict:
    return Verdict(what, is_met if value else None, value)


def _shown(values: Sequence[str]) -> str:
    more = f" or {len(values) - _SHOWN_MAX} more" if len(values) > _SHOWN_MAX else ""
    return " or ".join(values[:_SHOWN_MAX]) + more
