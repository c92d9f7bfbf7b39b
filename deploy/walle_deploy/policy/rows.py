"""Rows: for one task and a class of devices, the releases that remain, in their order."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from walle_deploy.model.receipts import Group as Side
from walle_deploy.policy.facts import Facts
from walle_deploy.policy.hashing import MASK
from walle_deploy.policy.tree import Guard, Test


class Offer(NamedTuple):
    """The wanted version of a task, and the release that offers it."""

    task: str
    version: str
    """Empty for no version."""
    release_id: str
    """Empty for the stable version."""


class Standing(NamedTuple):
    """The group of a device with a version of a task in the releases in progress."""

    release_id: str = ""
    """Id of the release that includes the device; empty for none."""
    group: Side = ""


class Candidate(NamedTuple):
    """A release that may admit a device of the class."""

    key: int
    limit: int
    """The highest position under ``key`` within the release's share."""
    test: Test | None
    """Test of the device itself; None for no test."""
    offer: Offer
    standing: Standing
    before: str
    """Version of the control group, which is beyond the limit; empty for no control group."""


class Choices(NamedTuple):
    """Candidates in order; the first that admits a device wins.

    Thousands of rows are in memory, and reading a key costs more than a step of a loop. So a
    candidate that admits all remaining devices is separate: its key is never read.
    """

    limited: tuple[Candidate, ...]
    rest: Candidate | None = None

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> Self:
        """Return the choices from candidates in their order."""
        if candidates and candidates[-1].test is None and candidates[-1].limit == MASK:
            return cls(tuple(candidates[:-1]), candidates[-1])
        return cls(tuple(candidates))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All candidates in their order."""
        return self.limited if self.rest is None else (*self.limited, self.rest)

    def choose(self, facts: Facts) -> Offer | None:
        """Return a device's offer, or None for none."""
        hashed = facts.device_hash
        for key, limit, test, offer, _, _ in self.limited:
            if (hashed * key & MASK) <= limit and (test is None or test(facts) is True):
                return offer
        return self.rest.offer if self.rest is not None else None


class Row(NamedTuple):
    """One task of a class."""

    task: str
    open: Choices
    """Candidates that may admit any device of the class."""
    every: Choices
    """All candidates, including those for named devices or users."""
    is_watched: bool
    """Whether a candidate is in progress."""


class Guarded(NamedTuple):
    """A row, and the releases that are unfit for the class."""

    row: Row | None
    """None if no device of the class gets an offer."""
    unfit: tuple[str, ...]
    """Releases that admit such devices, but were not checked for their Python."""


class Names:
    """Devices and users that releases name, by which a task's whole row counts for all classes.

    Names by class would be hundreds of thousands of objects, which the garbage collector would
    scan while all checks wait.
    """

    def __init__(self) -> None:
        """Start without names."""
        self.of_device: dict[str, tuple[str, ...]] = {}
        """Tasks by a device's id."""
        self.of_user: dict[str, tuple[str, ...]] = {}

    def add(self, task: str, guard: Guard) -> None:
        """Add the ids of a guard."""
        names = self.of_user if guard.is_user else self.of_device
        for name in guard.ids:
            known = names.get(name, ())
            if task not in known:
                names[name] = (*known, task)
