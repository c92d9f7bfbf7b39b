"""Evidence that one share is larger than another, valid however often it is evaluated.

An e-process is the capital of a gambler who began with 1 and bets fairly against a hypothesis.
If the hypothesis is true, the capital ever reaches ``1/alpha`` with a probability of at most
``alpha`` (Ville's inequality). So the test may be evaluated after every device and stop then. Our
bets are likelihood ratios, mixed over possible sizes of the larger share. Part of the capital is
never bet (Ramdas et al., Game-Theoretic Statistics and Safe Anytime-Valid Inference, 2023).

Counts may include devices whose mark comes late (a device that has not failed yet). Every bet is
on more marks, so counting a device too early only lowers the evidence. Counts may be fractions.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

type Array = NDArray[np.float64]

# pairs of a factor of the odds and the share of the capital bet on it; the rest is kept
SHARES_BETS: Final = ((2.0, 0.05), (8.0, 0.6), (64.0, 0.25))
"""For few marked devices: four of 500 must be evidence against one in a thousand."""

DRIFT_BETS: Final = ((1.5, 0.25), (2.5, 0.3), (5.0, 0.25), (25.0, 0.1))
"""For shares of about a half, such as the runs slower than the median."""

_SMALL: Final = 1e-5


class Counts(NamedTuple):
    """Number of items, and number of marked items among them."""

    marked: float
    """0 to ``total``."""
    total: float


def exceeds(counts: Counts, limit: float, bets: tuple[tuple[float, float], ...]) -> float:
    """Return the log e-value against a share of at most ``limit``, which is in (0, 1)."""
    return float(_above(counts, np.array([limit]), bets)[0])


def exceeds_other(new: Counts, old: Counts, bets: tuple[tuple[float, float], ...]) -> float:
    """Return the log e-value against the hypothesis that the new share is at most the old one.

    For each possible old share, the capital is a product: the new counts bet against "at most this
    share", the old counts against "at least this share". The least of these products counts.
    """
    log_odds = np.linspace(np.log(_SMALL), np.log(1 / _SMALL), 96)
    shares = np.asarray(1.0 / (1.0 + np.exp(-log_odds)))
    # fewer marked items are more unmarked items
    without = Counts(old.total - old.marked, old.total)
    return float(np.min(_above(new, shares, bets) + _above(without, 1.0 - shares, bets)))


def _above(counts: Counts, limits: Array, bets: tuple[tuple[float, float], ...]) -> Array:
    """Return the logarithm of the capital of bets on more than each limit."""
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
