"""Evidence that devices fail sooner in one group than in another one at the same time.

This is the safe log-rank test (ter Schure, Pérez-Ortiz, Ly and Grünwald, The Safe Logrank Test,
2020). In a window, ``n`` devices of ``new`` and ``m`` of ``control`` are at risk, and ``d`` and
``c`` of them fail. If the versions are alike, any of the ``d + c`` may be those of ``new``, at any
hour of the day and with any number of devices: ``d`` is hypergeometric. A bet on an odds ratio then
wins ``odds**d / E[odds**d]``, which is fair.

An upper bound replaces the expected value. It is the least of the expected values of the four
binomials for drawing with replacement (Hoeffding, Probability Inequalities for Sums of Bounded
Random Variables, 1963, theorem 4). So the capital of all bets together is a supermartingale. The
chance that the capital ever reaches ``1/alpha`` is at most ``alpha``, for any number of looks
(Ville).

All arrays may have further axes in front: simulations fold thousands of windows at once.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from walle_deploy.model.health import LEVELS

type Array = NDArray[np.float64]
type Logs = tuple[tuple[float, ...], ...]
"""Logarithm of the capital of each bet, by level and odds."""

BETS: Final = ((2.5, 0.15), (8.0, 0.25), (32.0, 0.25), (128.0, 0.25))
"""Pairs of an odds ratio and the share of the capital bet on it; the rest is kept. No ratio is near
1: a version that fails a little more often is no reason to stop. A small difference between the
groups, such as in the time of installation, is no evidence."""

NOTHING: Final[Logs] = tuple((0.0,) * len(BETS) for _ in LEVELS)
"""Capital before the first window."""

_ODDS: Final = np.array([odds for odds, _ in BETS])
_WEIGHTS: Final = np.log([weight / len(LEVELS) for _, weight in BETS])
_KEPT: Final = float(np.log(1.0 - sum(weight for _, weight in BETS)))


def gains(new: tuple[Array, Array], control: tuple[Array, Array]) -> Array:
    """Return the logarithms of the winnings of the bets in windows.

    Args:
        new: Numbers of devices at risk, and of failing devices among them. All four arrays have the
            same shape, which is arbitrary.
        control: The same numbers of the control group.

    Returns:
        An array of that shape with a last axis for ``BETS``.
    """
    logs = np.zeros((*new[0].shape, len(BETS)))
    some = new[1] + control[1] > 0  # where nothing fails, nothing is won or lost
    mine, won = (counts[some][:, None] for counts in new)
    others, lost = (counts[some][:, None] for counts in control)
    devices, failing = mine + others, won + lost
    share, rate = mine / devices, failing / devices
    log_odds, up, down = np.log(_ODDS), _ODDS - 1.0, 1.0 / _ODDS - 1.0
    fair = np.minimum(failing * np.log1p(share * up), mine * np.log1p(rate * up))
    sound = mine * log_odds + (devices - failing) * np.log1p(share * down)
    spared = failing * log_odds + others * np.log1p(rate * down)
    logs[some] = won * log_odds - np.minimum(fair, np.minimum(sound, spared))
    return logs


def strength(logs: Array) -> Array:
    """Return the logarithm of the capital of all bets; ``logs`` is ``(..., levels, bets)``."""
    total = np.logaddexp.reduce((logs + _WEIGHTS).reshape(*logs.shape[:-2], -1), axis=-1)
    return np.asarray(np.logaddexp(total, _KEPT))
