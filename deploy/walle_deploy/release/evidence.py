"""Evidence that a share is larger than another one, valid however often one looks.

An e-process is what a gambler has who began with 1 and bets fairly against a hypothesis: where
the hypothesis is true, it ever reaches ``1/alpha`` with a probability of ``alpha`` at most
(Ville's inequality), so one may look after every device and stop when it does. Ours bets on
likelihood ratios, a mixture over how much larger the share could be, part of the money never
on the table (Ramdas et al., Game-Theoretic Statistics and Safe Anytime-Valid Inference, 2023).

Counts may be of devices whose mark comes late (a device that has not failed yet): every bet is
on more marks, so what is counted too early is counted too low. Counts may be fractions.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

type Array = NDArray[np.float64]

# by which factor the odds are larger, and how much is bet on it; the rest is kept
SHARES_BETS: Final = ((2.0, 0.05), (8.0, 0.6), (64.0, 0.25))
"""For marks of few devices: four of 500 are to be evidence against one in a thousand."""

DRIFT_BETS: Final = ((1.5, 0.25), (2.5, 0.3), (5.0, 0.25), (25.0, 0.1))
"""For shares of about a half, as those of runs slower than the median."""

_SMALL: Final = 1e-5


class Counts(NamedTuple):
    """How many things there are, and how many of them have the mark."""

    marked: float
    """0 to ``total``."""
    total: float


def exceeds(counts: Counts, limit: float, bets: tuple[tuple[float, float], ...]) -> float:
    """Return the logarithm of the e-value against: the share is at most ``limit``, in (0, 1)."""
    return float(_above(counts, np.array([limit]), bets)[0])


def exceeds_other(new: Counts, old: Counts, bets: tuple[tuple[float, float], ...]) -> float:
    """Return the logarithm of the e-value against: the new share is the old one at most.

    For each share that the old one could have, the money is what the new counts win against
    "at most that" times what the old counts win against "at least that"; the share counts
    that lets it win least.
    """
    log_odds = np.linspace(np.log(_SMALL), np.log(1 / _SMALL), 96)
    shares = np.asarray(1.0 / (1.0 + np.exp(-log_odds)))
    # fewer with the mark are more without it
    without = Counts(old.total - old.marked, old.total)
    return float(np.min(_above(new, shares, bets) + _above(without, 1.0 - shares, bets)))


def _above(counts: Counts, limits: Array, bets: tuple[tuple[float, float], ...]) -> Array:
    """Return the logarithms of what bets on more than each limit made."""
    kept = 1.0 - sum(weight for _, weight in bets)
    total = np.full(limits.shape, np.log(kept))
    others = counts.total - counts.marked
    odds = limits / (1.0 - limits)
    for factor, weight in bets:
        share = factor * odds / (1.0 + factor * odds)
        won = counts.marked * np.log(share / limits)
        lost = others * (np.log1p(-share) - np.log1p(-limits))
        total = np.logaddexp(total, np.log(weight) + won + lost)
    return total
