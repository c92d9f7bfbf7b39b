"""The error function of float32 in blocks that stay in cache.

``erf(x) = x p(x^2) / q(x^2)`` on [-4, 4], beyond it is 1 to float32; both
polynomials are a weighted least-squares fit of our own, relative error 4e-7.
"""

from typing import Final

import numpy as np

from walle_stream.engine.program import Array

BLOCK: Final = 1 << 13
"""Elements: three blocks of float32 fit into the first cache but one."""

_LIMIT: Final = np.float32(4.0)
_P: Final = tuple(
    np.float32(each)
    for each in (
        1.986683040545759e-06, 0.0002845416645987962, 0.003882868754683801,
        0.0531002552938111, 0.19353597136187836, 1.1283791395361198,
    )
)  # fmt: skip
_Q: Final = tuple(
    np.float32(each)
    for each in (
        3.7417855603274595e-05, 0.0011854299942666883, 0.01520631747581593,
        0.11534598112917442, 0.5048493479535978, 1.0,
    )
)  # fmt: skip


def erf_into(x: Array, output: Array) -> None:
    """Compute the error function of float32 of any strides; ``output`` may be ``x``."""
    if not (x.flags.c_contiguous and output.flags.c_contiguous):
        result = np.ascontiguousarray(x)
        _blocks(result.reshape(-1), result.reshape(-1))
        np.copyto(output, result)
        return
    _blocks(x.reshape(-1), output.reshape(-1))


def _blocks(x: Array, output: Array) -> None:
    count = min(BLOCK, x.size)
    square, top, low = (np.empty(count, np.float32) for _ in range(3))
    for start in range(0, x.size, BLOCK):
        part = x[start : start + BLOCK]
        size = part.size
        t, p, q = square[:size], top[:size], low[:size]
        clipped = output[start : start + size]
        np.clip(part, -_LIMIT, _LIMIT, out=clipped)
        np.multiply(clipped, clipped, out=t)
        _polynomial(_P, t, p)
        _polynomial(_Q, t, q)
        np.multiply(clipped, p, out=clipped)
        np.divide(clipped, q, out=clipped)


def _polynomial(factors: tuple[np.float32, ...], t: Array, output: Array) -> None:
    np.multiply(t, factors[0], out=output)
    for factor in factors[1:-1]:
        np.add(output, factor, out=output)
        np.multiply(output, t, out=output)
    np.add(output, factors[-1], out=output)
