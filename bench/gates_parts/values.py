"""Times and sizes of runs of a simulated fleet: devices differ, and so do runs of one."""

import math
from typing import Final

import numpy as np

from gates_parts.fleet import PERCENTS, RUNS, Floats, Setting
from walle_deploy.model.health import GAMMA, GroupHealth, ReleaseHealth, VersionHealth

_SPREAD: Final = 0.3
"""Of the logarithms, by device and by run."""
_CLASSES: Final = 15
_MIDDLE: Final = {"latency_us": 500, "output_bytes": 300}
"""Bucket of the median: 22 ms, and 400 bytes."""
_WIDTH: Final = 1 / math.log(GAMMA)


class Values:
    """Of one release; versions are alike."""

    def __init__(self, setting: Setting, rng: np.random.Generator) -> None:
        """Draw devices.

        Args:
            setting: Of the fleet.
            rng: What is random.
        """
        self._minutes, self._rng = setting.minutes, rng
        step = np.searchsorted(PERCENTS, rng.random(setting.devices) * 100, side="right")
        own = rng.integers(_CLASSES, size=(len(_MIDDLE), setting.devices))
        self._devices = [np.bincount(step, minlength=len(PERCENTS) + 1)]
        self._classes = [
            [np.bincount(each[step == at], minlength=_CLASSES) for at in range(len(PERCENTS) + 1)]
            for each in own
        ]

    def health(self, step: int) -> ReleaseHealth:
        """Return what both groups did in a step.

        Args:
            step: From 0; the last but one and the last have the same devices.
        """
        until = min(step + 1, len(PERCENTS))
        return ReleaseHealth(
            new=self._group("v2", slice(0, until)), control=self._group("v1", slice(until, None))
        )

    def _group(self, version: str, steps: slice) -> GroupHealth:
        buckets = [
            self._buckets(sum(by_step[steps]), middle)
            for by_step, middle in zip(self._classes, _MIDDLE.values(), strict=True)
        ]
        health = VersionHealth(
            task="t",
            version=version,
            devices=int(self._devices[0][steps].sum()),
            latency_us=buckets[0],
            output_bytes=buckets[1],
        )
        return GroupHealth(release=health, step=health)

    def _buckets(self, classes: Floats, middle: int) -> dict[int, int]:
        runs = self._rng.poisson(RUNS * self._minutes * np.asarray(classes))
        counts = sum(self._rng.multinomial(n, p) for n, p in zip(runs, _CHANCES, strict=True))
        places = np.flatnonzero(counts)
        return {int(at) + middle - _REACH: int(np.asarray(counts)[at]) for at in places}


_REACH: Final = math.ceil(5 * _SPREAD * _WIDTH)


def _chances() -> Floats:
    """Return the distribution over buckets of the runs of a device, by its class."""
    shares = (np.arange(_CLASSES) + 0.5) / _CLASSES
    own = np.quantile(np.random.default_rng(0).normal(0, _SPREAD, 100_001), shares) * _WIDTH
    places = np.arange(-_REACH, _REACH + 1)
    found = np.exp(-((places[None, :] - own[:, None]) ** 2) / (2 * (_SPREAD * _WIDTH) ** 2))
    return np.asarray(found / found.sum(axis=1, keepdims=True))


_CHANCES: Final = _chances()
