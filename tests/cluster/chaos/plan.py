"""The faults of a campaign and their order, which follow from the seed."""

from random import Random
from typing import Final

import msgspec

SHARES: Final = {
    "node": 22,
    "cut": 18,
    "long cut": 4,
    "loss": 8,
    "disk": 4,
    "skew": 4,
    "host": 10,
    "supervisor": 8,
    "scale": 8,
    "broker": 4,
    "store": 4,
    "long store": 2,
    "head": 2,
    "upgrade": 2,
}
"""Percent of the faults. A node is killed and started again. A node has no network for 10 s, or for
60 s. A node loses 20 % of its packets for 10 s. A node's disk is full for 20 s. A node is killed
and started again with a wrong clock. The process of a host, or of the supervisor, is killed. The number
of hosts changes. One of three brokers, or the object store, is killed and started again, the store
also after two minutes. The head is killed, then ``ray up`` and the run start again. The run is
stopped, and started again by another version."""

_FAULTS_OF_LIFE: Final = 14


class ClusterPlan(msgspec.Struct, frozen=True):
    """The plan of a campaign."""

    faults: int
    seed: int


class LifePlan(msgspec.Struct, frozen=True):
    """A fresh cluster, and what happens to it."""

    number: int
    """From 1."""
    standbys: int
    faults: tuple[str, ...]
    """Names of ``SHARES``."""


def lives_of(plan: ClusterPlan) -> list[LifePlan]:
    """Return the lives of a campaign: the faults shared out evenly, two of three with a standby."""
    drawn = Random(plan.seed)
    deck = _deck(plan.faults)
    drawn.shuffle(deck)
    thirds = -(-plan.faults // (3 * _FAULTS_OF_LIFE))
    count = min(plan.faults, 3 * thirds)
    return [LifePlan(at + 1, int(at % 3 != 1), tuple(deck[at::count])) for at in range(count)]


def _deck(faults: int) -> list[str]:
    # as many of each as its share says; what rounding leaves goes to those that lack most
    exact = {name: faults * share / sum(SHARES.values()) for name, share in SHARES.items()}
    counts = {name: int(number) for name, number in exact.items()}
    lacking = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in lacking[: faults - sum(counts.values())]:
        counts[name] += 1
    return [name for name, count in counts.items() for _ in range(count)]
