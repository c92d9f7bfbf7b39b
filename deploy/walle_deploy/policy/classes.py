"""A class of devices: devices that all policies treat alike, except by identity."""

from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np

from walle_deploy.policy.facts import Facts
from walle_deploy.policy.hashing import MASK
from walle_deploy.policy.rows import Candidate, Choices, Guarded, Names, Offer, Standing

_WIDE: Final = 40
"""Number of candidates from which numpy is faster than Python's loop (bench/release.py)."""
_NOWHERE: Final = Standing()


class DeviceClass:
    """A class of devices: devices that all policies treat alike, except by identity."""

    def __init__(
        self,
        example: tuple[Any, ...],
        rows: list[Guarded],
        gone: frozenset[tuple[str, str]],
        names: Names,
    ) -> None:
        """Lay out the rows of the class; ``gone`` has withdrawn versions by task."""
        self.example = example
        """A device's values of all fields."""
        self._gone = gone
        self._names = names
        self._rows = [row.row for row in rows if row.row is not None]
        self._numbers: dict[str, int] = {}
        self.unfit = tuple({release_id: None for row in rows for release_id in row.unfit})
        self._plain = [_plain(row.task, row.open) for row in self._rows]
        self._watched = {row.task: row.every.candidates for row in self._rows if row.is_watched}
        count = sum(len(row.open.candidates) for row in self._rows)
        self._is_wide = count >= _WIDE
        if self._is_wide:
            self._lay_out()

    def decide(self, facts: Facts) -> list[Offer]:
        """Return the offers whose versions a device of the class does not have."""
        return self._decide_wide(facts) if self._is_wide else self._decide_narrow(facts)

    def standings(self, facts: Facts, versions: Mapping[str, str]) -> dict[str, Standing]:
        """See ``Look``."""
        standings = {}
        for task, candidates in self._watched.items():
            version = versions.get(task)
            if version and (standing := _stand(candidates, facts, version)).release_id:
                standings[task] = standing
        return standings

    def _with_losses(self, offers: list[Offer], facts: Facts) -> list[Offer]:
        """Add the loss of withdrawn versions that no release replaces."""
        has = facts.profile.tasks.items()
        if not self._gone or self._gone.isdisjoint(has):
            return offers
        # few devices reach this point
        gone = {task for task, _ in self._gone.intersection(has)} - {offer.task for offer in offers}
        gone -= {
            row.task
            for row in self._rows
            if row.task in gone and row.every.choose(facts) is not None
        }
        return offers + [Offer(task, "", "") for task in sorted(gone)]

    def _named(self, facts: Facts) -> list[int]:
        """Return the rows with a release that may name this device or its user."""
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
        plain = self._plain
        if named := self._named(facts):
            plain = plain.copy()
            for number in named:
                row = self._rows[number]
                plain[number] = _plain(row.task, row.every)
        installed = facts.profile.tasks.get
        hashed = facts.device_hash
        offers = []
        for task, limited, offer in plain:
            for key, limit, test, limited_offer, _, _ in limited:
                if (hashed * key & MASK) <= limit and (test is None or test(facts) is True):
                    offer = limited_offer  # noqa: PLW2901 - replaces the offer of the rest
                    break
            if offer is not None and installed(task, "") != offer.version:
                offers.append(offer)
        return self._with_losses(offers, facts)

    def _lay_out(self) -> None:
        # fill each row up with candidates that let every device keep what it has
        rows, width = self._rows, max(len(row.open.candidates) for row in self._rows) + 1
        shape = (len(rows), width)
        self._keys = np.zeros(shape, np.uint64)
        self._limits = np.full(shape, MASK, np.uint64)
        has_test = np.zeros(shape, bool)
        self._offsets = np.arange(len(rows)) * width
        versions: list[str | None] = []
        self._offers: list[Offer | None] = []
        for number, row in enumerate(rows):
            opened = row.open.candidates
            count, more = len(opened), width - len(opened)
            self._keys[number, :count] = [candidate.key for candidate in opened]
            self._limits[number, :count] = [candidate.limit for candidate in opened]
            has_test[number, :count] = [candidate.test is not None for candidate in opened]
            versions += [*(candidate.offer.version for candidate in opened), *[None] * more]
            self._offers += [*(candidate.offer for candidate in opened), *[None] * more]
        self._versions = np.array(versions, object)
        # "" is the wanted version of a device that must have none
        self._is_whole = "" not in {
            candidate.offer.version for row in rows for candidate in row.every.candidates
        }
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
        chosen: dict[int, Offer | None] = {}
        for number in slow:
            chosen[number] = offer = self._rows[number].every.choose(facts)
            wanted[number] = offer.version if offer is not None else None
        installed = list(map(facts.profile.tasks.get, self._task_names, repeat("")))
        if wanted == installed and self._is_whole and len(wanted) == len(facts.profile.tasks):
            return []  # the offers cover all its tasks, so nothing can be lost
        offers = [
            chosen[number] if number in chosen else self._offers[int(first[number])]
            for number, (version, has) in enumerate(zip(wanted, installed, strict=True))
            if version is not None and version != has
        ]
        return self._with_losses([offer for offer in offers if offer is not None], facts)


class Look(NamedTuple):
    """A device from the view of all releases of a table."""

    device_class: DeviceClass
    facts: Facts

    def decide(self) -> list[Offer]:
        """Return the offers whose versions the device does not have; never blocks."""
        return self.device_class.decide(self.facts)

    def standings(self, versions: Mapping[str, str]) -> dict[str, Standing]:
        """Return the device's standing in releases in progress, by task; never blocks.

        ``versions`` has the version of each task that the device has, or is about to have. Tasks
        without a release in progress that concerns the device are left out.
        """
        return self.device_class.standings(self.facts, versions)


def _plain(task: str, choices: Choices) -> tuple[str, tuple[Candidate, ...], Offer | None]:
    return task, choices.limited, choices.rest.offer if choices.rest is not None else None


def _stand(candidates: Iterable[Candidate], facts: Facts, version: str) -> Standing:
    hashed = facts.device_hash
    beyond = _NOWHERE
    for key, limit, test, offer, standing, before in candidates:
        is_beyond = (hashed * key & MASK) > limit
        if is_beyond and before != version:
            continue
        if test is not None and test(facts) is not True:
            continue
        if is_beyond:
            beyond = Standing(offer.release_id, "control")
        elif offer.version != version:
            return _NOWHERE  # the device is to have another version
        else:
            return beyond if beyond.release_id else standing
    return beyond  # the device keeps what it has
