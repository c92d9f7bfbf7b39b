"""Times and sizes of runs of a simulated fleet: devices differ, and so do runs of one.

As the product weighs them: each device once a step, by its second minute with a report in it.
"""

import math
from typing import Final

import numpy as np

from gates_parts.fleet import Clock, Fleet, Floats
from walle_deploy.model.health import GAMMA, GroupHealth, ReleaseHealth, VersionHealth

_SPREAD: Final = 0.3
"""Of the logarithms, by device and by run."""
_MIDDLE: Final = {"latency_us": 500, "output_bytes": 300}
"""Bucket of the median: 22 ms, and 400 bytes."""
_WIDTH: Final = 1 / math.log(GAMMA)
_HOURLY: Final = 0.2
"""Of the logarithm of times, with the rhythm of the day."""


class Values:
    """Of one release; versions are alike."""

    def __init__(self, clock: Clock, fleet: Fleet, rng: np.random.Generator) -> None:
        """Draw devices.

        Args:
            clock: Of the fleet.
            fleet: Its devices.
            rng: Random generator.
        """
        self._clock, self._fleet, self._rng = clock, fleet, rng
        self._own = [
            rng.normal(0, _SPREAD, len(fleet.pace)) + fleet.slower * (name == "latency_us")
            for name in _MIDDLE
        ]
        self._step = -1

    def health(self, step: int, minute: float) -> ReleaseHealth:
        """Return what both groups did in a step so far.

        Args:
            step: From 0; the last but one and the last have the same devices.
            minute: Of the release.
        """
        if step != self._step:
            self._step = step
            self._draw(float(self._fleet.begins[step]))
        return ReleaseHealth(
            new=self._group("v2", self._new, minute), control=self._group("v1", self._old, minute)
        )

    def _draw(self, begin: float) -> None:
        fleet, end = self._fleet, len(self._clock.rhythm)
        self._new = self._weighed(fleet.moved, begin)
        old = self._weighed(fleet.entered, begin)
        self._old = np.where(old < fleet.moved, old, end)

    def _weighed(self, entered: Floats, begin: float) -> Floats:
        """Return when devices are weighed in a step; the end for never."""
        clock, pace = self._clock, self._fleet.pace
        first = clock.next_run(np.maximum(entered, begin), pace, self._rng)
        ran = clock.next_run(np.floor(first) + 1, pace, self._rng)
        return self._fleet.reported(slice(None), ran)

    def _group(self, version: str, weighed: Floats, minute: float) -> GroupHealth:
        here = np.flatnonzero(weighed < minute)
        hour = self._clock.rhythm[weighed[here].astype(np.int64)] - 1
        made = {}
        for (name, middle), own in zip(_MIDDLE.items(), self._own, strict=True):
            # a device has one run in each step, the same however often it is looked at
            run = np.random.default_rng([self._step, middle]).normal(0, _SPREAD, len(own))
            value = own[here] + run[here] + (_HOURLY * hour if name == "latency_us" else 0)
            places, counts = np.unique((value * _WIDTH + middle).astype(int), return_counts=True)
            made[name] = dict(zip(places.tolist(), counts.tolist(), strict=True))
        health = VersionHealth(task="t", version=version, devices=len(here), **made)
        return GroupHealth(release=health, step=health)
