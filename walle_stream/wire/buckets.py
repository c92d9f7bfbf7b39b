"""Buckets of 1 % accuracy, in which reports count values."""

from math import ceil, log
from typing import Final

BUCKET_GAMMA: Final = (1 + 0.01) / (1 - 0.01)
"""Ratio of a bucket's bounds: any value in it is at most 1 % from the bucket's middle."""

BUCKET_MAX: Final = 2_000
"""Highest bucket, which also counts all values above 2.3e17."""

CALL_BUCKETS: Final = 4_096
"""Distance from the buckets of one call size to those of the next; see ``timed_bucket``."""

_CALLS_MAX: Final = 15

TIMED_MAX: Final = _CALLS_MAX * CALL_BUCKETS + BUCKET_MAX
"""Highest result of ``timed_bucket``."""

_SCALE: Final = 1 / log(BUCKET_GAMMA)


def bucket_of(value: float) -> int:
    """Return a value's bucket: 0 up to 1, else i for (BUCKET_GAMMA**(i-1), BUCKET_GAMMA**i]."""
    return min(ceil(log(value) * _SCALE), BUCKET_MAX) if value > 1 else 0


def timed_bucket(call_us: float, runs: int) -> int:
    """Return the bucket of the runs of one call of a VM.

    A call has a fixed cost besides its runs, so runs in small calls look slower, and only runs of
    similar calls can be compared. ``place // CALL_BUCKETS`` is the call's size as a power of two,
    and ``place % CALL_BUCKETS`` is the bucket of a run's time.
    """
    return CALL_BUCKETS * min(runs.bit_length() - 1, _CALLS_MAX) + bucket_of(call_us / runs)
