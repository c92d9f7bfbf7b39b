"""The index over all releases: what a device is to have, in a few microseconds.

Devices that all policies treat alike until one asks who they are form a class; a class is
made once and holds for each task the few releases that may take such a device in. A decision
looks the class up and asks those; it does not depend on how many devices or files there are.
Releases for named devices or users are found by the name. The number of classes is bounded by
what policies tell apart, not by what devices make up, and all caches have a bound as well.
Held against ``judging.choose`` by property tests. Not for several threads at once.
"""

from collections.abc import Iterator, Mapping
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.receipts import Group as Side
from walle_deploy.model.releases import ActiveRelease, ReleaseTable
from walle_deploy.policy.compiling import FIELDS, Compiler, guarded
from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import MASK, id_hash, salt_key, share_limit
from walle_deploy.policy.judging import releases_by_task
from walle_deploy.policy.model import Policy
from walle_deploy.policy.specialising import (
    Outcomes,
    can_hold,
    guard_of,
    specialise,
    static_leaves,
    test_of,
)
from walle_deploy.policy.tree import Group, Guard, Node, Static, Test

CLASSES_MAX: Final = 1_024
"""Classes that are kept; more are made again when they are asked for."""

_PROFILES_MAX: Final = 8_192
_OUTCOMES_MAX: Final = 8_192
_ROWS_MAX: Final = 256
"""Of a task; what its policies tell apart is mostly a handful."""
_UNFIT_MAX: Final = 4_096
_WIDE: Final = 40
"""Candidates from which numpy's calls cost less than Python's loop (bench/release.py)."""

_get_fields: Final = attrgetter(*FIELDS)


class Offer(NamedTuple):
    """A task whose version on the device is not the one to have."""

    task: str
    version: str
    """Empty: none."""
    release_id: str
    """Empty for the stable version."""


class Standing(NamedTuple):
    """Where a device that has a version of a task stands among the releases in progress."""

    release_id: str = ""
    """The one that it is part of; empty for none."""
    group: Side = ""


_NOWHERE: Final = Standing()


class _Compiled(NamedTuple):
    release: ActiveRelease
    code: Static | None
    """Whether the device can run it; None: any can."""
    node: Node
    key: int
    limit: int
    group: Side = ""
    """Of those whom it takes in."""


class _Candidate(NamedTuple):
    key: int
    limit: int
    test: Test | None
    version: str
    release_id: str
    standing: Standing
    before: str
    """Who is beyond the limit and has this version is of its control group; empty: nobody."""


class _Row(NamedTuple):
    """One task of a class."""

    task: str
    open: tuple[_Candidate, ...]
    """Those that any device of the class may be taken in by."""
    every: tuple[_Candidate, ...]
    """And those for named devices or users."""
    is_watched: bool
    """Whether one of them is in progress."""


class _Guarded(NamedTuple):
    """A row, and what became of the rest."""

    row: _Row | None
    """None where no device of the class gets anything."""
    unfit: tuple[str, ...]
    """Releases that take such devices in, but were not checked with their Python."""


class _Names:
    """Who has to be asked about all of a task's row, whatever the class: one for all classes.

    Held once, as names by class would be hundreds of thousands of objects for the garbage
    collector to look at, with all checks waiting.
    """

    def __init__(self) -> None:
        self.of_device: dict[str, tuple[str, ...]] = {}
        """Tasks by a device's id."""
        self.of_user: dict[str, tuple[str, ...]] = {}

    def add(self, task: str, guard: Guard) -> None:
        names = self.of_user if guard.is_user else self.of_device
        for name in guard.ids:
            known = names.get(name, ())
            if task not in known:
                names[name] = (*known, task)


class ReleaseIndex:
    """Decides over one table; made anew when the table changes."""

    def __init__(self, table: ReleaseTable, sources: Sources) -> None:
        """Compile all policies; takes milliseconds for a thousand releases.

        Raises:
            SpecFileError: A policy cannot be read.
        """
        self.generation = table.generation
        self._sources = sources
        self._compiler = Compiler(sources)
        self._table = table
        self._names = _Names()
        self._tasks = [
            _Task(
                task,
                [compiled for release in releases for compiled in self._compiled(release)],
                self._names,
            )
            for task, releases in releases_by_task(table).items()
        ]
        self._gone = frozenset(
            (task, version) for task, gone in table.withdrawn.items() for version in gone
        )
        self.tasks = frozenset(releases_by_task(table))
        """Those that it knows anything of."""
        self._is_watching = any(release.is_watched for release in table.releases)
        self._unfit: dict[str, set[int]] = {}
        self._fields = self._compiler.fields
        self._outcomes: list[dict[Any, tuple[bool | None, ...]]] = [{} for _ in FIELDS]
        self._classes: dict[Outcomes, _Class] = {}
        self._by_profile: dict[tuple[Any, ...], _Class] = {}

    def decide(self, profile: DeviceProfile, device_hash: int | None = None) -> list[Offer]:
        """Return what a device is to have and has not; never blocks.

        ``device_hash`` is the ``id_hash`` of its id, where it is known already.
        """
        fields = _get_fields(profile)
        device_class = self._by_profile.get(fields)
        if device_class is None:
            device_class = self._class_of(fields)
        hashed = id_hash(profile.device) if device_hash is None else device_hash
        if device_class.unfit:
            for release_id in device_class.unfit:
                known = self._unfit.setdefault(release_id, set())
                if len(known) < _UNFIT_MAX:
                    known.add(hashed)
        return device_class.decide(Facts(profile, self._sources, hashed))

    def standings(
        self, profile: DeviceProfile, device_hash: int, versions: Mapping[str, str]
    ) -> dict[str, Standing]:
        """Return where a device stands in releases in progress, by task; never blocks.

        ``versions`` is what it has of each task, or is about to have. Tasks of which no release in
        progress concerns it are not there.
        """
        if not self._is_watching:
            return {}
        fields = _get_fields(profile)
        device_class = self._by_profile.get(fields) or self._class_of(fields)
        return device_class.standings(Facts(profile, self._sources, device_hash), versions)

    @property
    def unfit_devices(self) -> dict[str, int]:
        """Devices that asked and whose Python a version was not checked with, by release.

        Empty for the stable version. At most 4,096 of a release are told apart.
        """
        return {release_id: len(known) for release_id, known in self._unfit.items()}

    @property
    def class_count(self) -> int:
        """How many classes of devices are kept."""
        return len(self._classes)

    def _compiled(self, release: ActiveRelease) -> Iterator[_Compiled]:
        node = self._compiler.compile(Policy.of(release.policy), release.salt)
        interpreters = self._table.interpreters(release.task, release.version)
        code = self._compiler.compile_code(interpreters) if interpreters else None
        if release.stage == "beta" or release.devices:
            # named devices first: guards are looked for from the left
            named = guarded(Guard(is_user=False, ids=release.devices))
            yield _Compiled(release, code, Group(is_all=True, parts=(named, node)), 0, MASK)
        if release.stage != "beta":
            key, limit = salt_key(release.salt), share_limit(release.percent)
            yield _Compiled(release, code, node, key, limit, "new")

    def _class_of(self, fields: tuple[Any, ...]) -> "_Class":
        outcomes = tuple(
            self._outcomes_of(number, fields[number]) if number in self._fields else ()
            for number in range(len(FIELDS))
        )
        device_class = self._classes.get(outcomes)
        if device_class is None:
            if len(self._classes) >= CLASSES_MAX:
                del self._classes[next(iter(self._classes))]
                self._by_profile.clear()
            rows = [task.row(outcomes) for task in self._tasks]
            device_class = self._classes[outcomes] = _Class(rows, self._gone, self._names)
        if len(self._by_profile) >= _PROFILES_MAX:
            self._by_profile.clear()
        self._by_profile[fields] = device_class
        return device_class

    def _outcomes_of(self, number: int, value: Any) -> tuple[bool | None, ...]:
        known = self._outcomes[number]
        outcomes = known.get(value)
        if outcomes is None:
            if len(known) >= _OUTCOMES_MAX:
                known.clear()
            outcomes = known[value] = self._compiler.outcomes(number, value)
        return outcomes

    def warm(self, before: "ReleaseIndex") -> None:
        """Make the classes that another index has in use; may run beside its decisions."""
        for fields in list(before._by_profile):  # noqa: SLF001 - of its own class
            self._class_of(fields)


class _Task:
    """The releases of one task, and its rows by what its policies ask of a class."""

    def __init__(self, name: str, compiled: list[_Compiled], names: _Names) -> None:
        self._name = name
        self._names = names
        self._compiled = compiled
        leaves = {leaf: None for item in compiled for leaf in static_leaves(item.node)}
        leaves |= {item.code: None for item in compiled if item.code is not None}
        self._leaves = tuple(leaves)
        self._rows: dict[tuple[bool | None, ...], _Guarded] = {}

    def row(self, outcomes: Outcomes) -> _Guarded:
        """Return its row for a class."""
        key = tuple([outcomes[field][number] for field, number in self._leaves])
        try:
            return self._rows[key]
        except KeyError:
            if len(self._rows) >= _ROWS_MAX:
                self._rows.clear()
            result = self._rows[key] = self._build_row(outcomes)
            return result

    def _build_row(self, outcomes: Outcomes) -> _Guarded:
        opened, every = [], []
        unfit: dict[str, None] = {}
        for item in self._compiled:
            node = specialise(item.node, outcomes)
            if item.limit < 0 or not can_hold(node):
                continue
            if item.code is not None and outcomes[item.code.field][item.code.number] is False:
                unfit[item.release.release_id] = None
                continue
            guard = guard_of(node)
            test = None if node is True else test_of(node)
            release = item.release
            is_watched = release.is_watched
            candidate = _Candidate(
                item.key,
                item.limit,
                test,
                release.version,
                release.release_id,
                Standing(release.release_id, item.group) if is_watched else _NOWHERE,
                release.before if is_watched and item.group else "",
            )
            every.append(candidate)
            if guard is not None:
                self._names.add(self._name, guard)
                continue
            opened.append(candidate)
            if test is None and item.limit == MASK:
                break  # takes everybody: nobody behind it is asked
        is_watched = any(candidate.standing.release_id for candidate in every)
        row = _Row(self._name, tuple(opened), tuple(every), is_watched) if every else None
        return _Guarded(row, tuple(unfit))


class _Class:
    """The devices that all policies treat alike until one asks who they are."""

    def __init__(
        self, rows: list[_Guarded], gone: frozenset[tuple[str, str]], names: _Names
    ) -> None:
        self._gone = gone
        self._names = names
        self._rows = [row.row for row in rows if row.row is not None]
        self._numbers: dict[str, int] = {}
        self.unfit = tuple({release_id: None for row in rows for release_id in row.unfit})
        self._plain = [(number, row.task, row.open) for number, row in enumerate(self._rows)]
        self._watched = {row.task: row for row in self._rows if row.is_watched}
        count = sum(len(row.open) for row in self._rows)
        self._is_wide = count >= _WIDE
        if self._is_wide:
            self._lay_out()

    def decide(self, facts: Facts) -> list[Offer]:
        return self._decide_wide(facts) if self._is_wide else self._decide_narrow(facts)

    def standings(self, facts: Facts, versions: Mapping[str, str]) -> dict[str, Standing]:
        standings = {}
        for task in self._watched.keys() & versions.keys():
            version = versions[task]
            standing = _stand(self._watched[task].every, facts, version) if version else _NOWHERE
            if standing.release_id:
                standings[task] = standing
        return standings

    def _with_losses(self, offers: list[Offer], facts: Facts) -> list[Offer]:
        """Whom nobody gives anything loses what was withdrawn."""
        has = facts.profile.tasks.items()
        if self._gone.isdisjoint(has):
            return offers
        # few devices
        gone = {task for task, _ in self._gone.intersection(has)} - {offer.task for offer in offers}
        gone -= {
            row.task
            for row in self._rows
            if row.task in gone and _choose(row.every, facts)[0] is not None
        }
        return offers + [Offer(task, "", "") for task in sorted(gone)]

    def _named(self, facts: Facts) -> list[int]:
        """Rows with a release that may name this device or its user."""
        names = self._names
        tasks = names.of_device.get(facts.profile.device, ())
        if names.of_user and facts.profile.user:
            tasks = (*tasks, *names.of_user.get(facts.profile.user, ()))
        if not tasks:
            return []
        if not self._numbers:
            self._numbers = {row.task: number for number, row in enumerate(self._rows)}
        return [self._numbers[task] for task in tasks if task in self._numbers]

    def _decide_narrow(self, facts: Facts) -> list[Offer]:
        named = self._named(facts)
        rows = self._rows
        installed = facts.profile.tasks.get
        hashed = facts.device_hash
        offers = []
        for number, task, candidates in self._plain:
            if named and number in named:
                candidates = rows[number].every  # noqa: PLW2901 - the exception
            for key, limit, test, version, release_id, _, _ in candidates:
                if (hashed * key & MASK) <= limit and (test is None or test(facts) is True):
                    if installed(task, "") != version:
                        offers.append(Offer(task, version, release_id))
                    break
        return self._with_losses(offers, facts)

    def _lay_out(self) -> None:
        # behind its own candidates a row has ones that let everybody keep what he has
        rows, width = self._rows, max(len(row.open) for row in self._rows) + 1
        shape = (len(rows), width)
        self._keys = np.zeros(shape, np.uint64)
        self._limits = np.full(shape, MASK, np.uint64)
        has_test = np.zeros(shape, bool)
        self._offsets = np.arange(len(rows)) * width
        versions: list[str | None] = []
        self._releases: list[str] = []
        for number, row in enumerate(rows):
            count = len(row.open)
            self._keys[number, :count] = [candidate.key for candidate in row.open]
            self._limits[number, :count] = [candidate.limit for candidate in row.open]
            has_test[number, :count] = [candidate.test is not None for candidate in row.open]
            versions += [*(candidate.version for candidate in row.open), *[None] * (width - count)]
            self._releases += [
                *(candidate.release_id for candidate in row.open),
                *[""] * (width - count),
            ]
        self._versions = np.array(versions, object)
        # "" is wanted of who has nothing
        self._is_whole = "" not in {candidate.version for row in rows for candidate in row.every}
        self._has_test = has_test.reshape(-1)
        self._has_tests = bool(has_test.any())
        self._task_names = [row.task for row in rows]

    def _decide_wide(self, facts: Facts) -> list[Offer]:
        is_in = (self._keys * np.uint64(facts.device_hash)) <= self._limits
        first = is_in.argmax(axis=1)
        first += self._offsets
        wanted: list[str | None] = self._versions.take(first).tolist()
        slow = self._named(facts)
        if self._has_tests:
            slow += self._has_test.take(first).nonzero()[0].tolist()
        chosen: dict[int, str] = {}
        for number in slow:
            wanted[number], chosen[number] = _choose(self._rows[number].every, facts)
        installed = list(map(facts.profile.tasks.get, self._task_names, repeat("")))
        if wanted == installed and self._is_whole and len(wanted) == len(facts.profile.tasks):
            return []  # all that it has is given to it: nothing can be lost
        offers = [
            Offer(
                self._task_names[number],
                version,
                chosen[number] if number in chosen else self._releases[int(first[number])],
            )
            for number, (version, has) in enumerate(zip(wanted, installed, strict=True))
            if version is not None and version != has
        ]
        return self._with_losses(offers, facts)


def _stand(candidates: tuple[_Candidate, ...], facts: Facts, version: str) -> Standing:
    hashed = facts.device_hash
    beyond = _NOWHERE
    for key, limit, test, wanted, release_id, standing, before in candidates:
        is_beyond = (hashed * key & MASK) > limit
        if is_beyond and before != version:
            continue
        if test is not None and test(facts) is not True:
            continue
        if is_beyond:
            beyond = Standing(release_id, "control")
        elif wanted != version:
            return _NOWHERE  # it is to have another one
        else:
            return beyond if beyond.release_id else standing
    return beyond  # it keeps what it has


def _choose(candidates: tuple[_Candidate, ...], facts: Facts) -> tuple[str | None, str]:
    hashed = facts.device_hash
    for key, limit, test, version, release_id, _, _ in candidates:
        if (hashed * key & MASK) <= limit and (test is None or test(facts) is True):
            return version, release_id
    return None, ""
