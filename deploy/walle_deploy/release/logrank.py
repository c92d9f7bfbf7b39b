"""Evidence that devices fail sooner in one group than in another one beside it.

The safe log-rank test (ter Schure, Pérez-Ortiz, Ly and Grünwald, The Safe Logrank Test, 2020): in a
window, ``n`` devices of ``new`` and ``m`` of ``control`` are at risk, ``d`` and ``c`` of them fail.
Where the versions are alike, any of the ``d + c`` may be those of ``new``, whatever hour of the day
it is and however many devices there are: ``d`` is hypergeometric. A bet on an odds ratio wins
``odds**d / E[odds**d]`` then, which is fair. In place of the expected value stands what is no less:
the least of those of the four binomials that drawing with replacement gives (Hoeffding, Probability
Inequalities for Sums of Bounded Random Variables, 1963, theorem 4). So the money of all bets
together is a supermartingale, and the chance that it ever reaches ``1/alpha`` is ``alpha`` at most,
however often one looks (Ville).

All arrays may have further axes in front: simulations fold thousands of windows at once.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from walle_deploy.model.health import LEVELS

type Array = NDArray[np.float64]
type Logs = tuple[tuple[float, ...], ...]
"""Logarithm of what each bet made, by level and odds."""

BETS: Final = ((2.5, 0.15), (8.0, 0.25), (32.0, 0.25), (128.0, 0.25))
"""Odds ratios, and how much is bet on each; the rest is kept. None is near 1: a version that fails
a little more often is no reason to stop, and what differs a little between groups (who installs
sooner, say) is no evidence."""

NOTHING: Final[Logs] = tuple((0.0,) * len(BETS) for _ in LEVELS)
"""Before the first window."""

_ODDS: Final = np.array([odds for odds, _ in BETS])
_WEIGHTS: Final = np.log([weight / len(LEVELS) for _, weight in BETS])
_KEPT: Final = float(np.log(1.0 - sum(weight for _, weight in BETS)))


def gains(new: tuple[Array, Array], control: tuple[Array, Array]) -> Array:
    """Return the logarithms of what bets win in windows.

    Args:
        new: How many devices are at risk, and how many of these fail, of any shape; the same for
            all four.
        control: The same of the other group.

    Returns:
        Of that shape, and a last axis for ``BETS``.
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
    """Return the logarithm of the money of all bets, of the shape ``(..., levels, bets)``."""
    total = np.logaddexp.reduce((logs + _WEIGHTS).reshape(*logs.shape[:-2], -1), axis=-1)
    return np.asarray(np.logaddexp(total, _KEPT))
