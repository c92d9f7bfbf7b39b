"""Rates with 95 % confidence intervals, for people; no gate uses them."""

import math
from typing import Final

import msgspec

_Z: Final = 1.959964


class Rate(msgspec.Struct, frozen=True):
    """A rate with the bounds of its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the rate and its interval for people."""
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


def share_of(marked: float, total: float) -> Rate | None:
    """Return a share with Wilson's interval, or None if ``total`` is 0.

    Similar runs of one device are not independent, so their interval is too narrow.
    """
    if total <= 0:
        return None
    share, spread = marked / total, _Z * _Z / total
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    return Rate(share, max(0.0, middle - half), min(1.0, middle + half))


def rate_of(events: float, exposure: float) -> Rate | None:
    """Return events per exposure with Byar's interval, nearly Poisson's; None without exposure."""
    if exposure <= 0:
        return None
    low = events * _cubed(1 - 1 / (9 * events) - _Z / (3 * math.sqrt(events))) if events else 0.0
    more = events + 1
    high = more * _cubed(1 - 1 / (9 * more) + _Z / (3 * math.sqrt(more)))
    return Rate(events / exposure, low / exposure, high / exposure)


def _cubed(value: float) -> float:
    return max(0.0, value) ** 3
