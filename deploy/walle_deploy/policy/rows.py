"""What is left of a task's releases for a class of devices: who is asked, in order, for what."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from walle_deploy.model.receipts import Group as Side
from walle_deploy.policy.facts import Facts
from walle_deploy.policy.hashing import MASK
from walle_deploy.policy.tree import Guard, Test


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


class Candidate(NamedTuple):
    """A release that may take a device of the class in."""

    key: int
    limit: int
    """The highest position under ``key`` that is within its share."""
    test: Test | None
    """What it asks of the device itself; None: nothing."""
    offer: Offer
    standing: Standing
    before: str
    """Who is beyond the limit and has this version is of its control group; empty: nobody."""


class Choices(NamedTuple):
    """Candidates; the first one that takes a device in wins.

    Thousands of rows are in memory, and a look at a key costs more than a step of a loop: the one
    that takes in all others stands apart, so that nobody looks at its key.
    """

    limited: tuple[Candidate, ...]
    rest: Candidate | None = None

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> Self:
        """Return those of candidates in their order."""
        if candidates and candidates[-1].test is None and candidates[-1].limit == MASK:
            return cls(tuple(candidates[:-1]), candidates[-1])
        return cls(tuple(candidates))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All of them."""
        return self.limited if self.rest is None else (*self.limited, self.rest)

    def choose(self, facts: Facts) -> Offer | None:
        """Return what a device is offered; None: nothing."""
        hashed = facts.device_hash
        for key, limit, test, offer, _, _ in self.limited:
            if (hashed * key & MASK) <= limit and (test is None or test(facts) is True):
                return offer
        return self.rest.offer if self.rest is not None else None


class Row(NamedTuple):
    """One task of a class."""

    task: str
    open: Choices
    """Those that any device of the class may be taken in by."""
    every: Choices
    """And those for named devices or users."""
    is_watched: bool
    """Whether one of them is in progress."""


class Guarded(NamedTuple):
    """A row, and what became of the rest."""

    row: Row | None
    """None where no device of the class gets anything."""
    unfit: tuple[str, ...]
    """Releases that take such devices in, but were not checked with their Python."""


class Names:
    """Who has to be asked about all of a task's row, whatever the class: one for all classes.

    Held once, as names by class would be hundreds of thousands of objects for the garbage
    collector to look at, with all checks waiting.
    """

    def __init__(self) -> None:
        """Start without any."""
        self.of_device: dict[str, tuple[str, ...]] = {}
        """Tasks by a device's id."""
        self.of_user: dict[str, tuple[str, ...]] = {}

    def add(self, task: str, guard: Guard) -> None:
        """Add those whom a guard lets in."""
        names = self.of_user if guard.is_user else self.of_device
        for name in guard.ids:
            known = names.get(name, ())
            if task not in known:
                names[name] = (*known, task)
