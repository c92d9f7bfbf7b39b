"""What all parts share: settings, quantiles, progress, memory of this process."""

import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

QUANTILES: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Quantiles that are kept of a distribution."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Settings(NamedTuple):
    """How much to measure."""

    seed: int
    tasks: int
    """Tasks at once."""
    rounds: int
    """Rounds that must count."""
    max_rounds: int
    target_s: float
    """Length of one measurement."""
    runs: int
    """Of the leak test."""
    repeats: int
    """Of short measurements, whose median is kept."""
    stops: int
    """Runaways stopped per kind."""
    vms: int
    """VMs whose creation and memory are measured."""
    cycles: int
    """Creations and destructions of the leak test."""
    control_min: float
    """What the control must scale by for a round to count."""
    batches: int = 4
    """Different inputs, so that no cache sees the same bytes at each call."""


def say(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all do not exceed; they need not be sorted."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def distribution(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Return count, mean and ``QUANTILES`` (as p50, ...) of some values."""
    ordered = sorted(values)
    last = len(ordered) - 1
    shown = {
        f"p{share * 100:g}": round(ordered[min(last, int(share * len(ordered)))], digits)
        for share in QUANTILES
    }
    return {"count": len(ordered), "mean": round(statistics.fmean(ordered), digits), **shown}


def quartiles(values: Sequence[float], digits: int = 3) -> dict[str, float]:
    """Return median and quartiles of the rounds' values; empty without any."""
    if not values:
        return {}
    if len(values) == 1:
        low = middle = high = values[0]
    else:
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {
        "q1": round(low, digits),
        "median": round(middle, digits),
        "q3": round(high, digits),
    }


def rss_bytes() -> int:
    """Return the memory of this process that is resident."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


def rollup_bytes() -> dict[str, int]:
    """Return PSS and USS of this process; the latter is what nobody else maps."""
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, value = line.split()[:2]
        found[name.rstrip(":")] = int(value) * 1024
    return {"pss": found["Pss"], "uss": found["Private_Clean"] + found["Private_Dirty"]}
