"""Comparison of outputs with those of a case, by the rule of ONNX's own runner."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from walle_stream.engine.rules import is_foreign

BFLOAT16_RTOL: Final = 2**-6
"""Two units in the last place of bfloat16, as ONNX allows."""


def difference(wanted: Sequence[Any], found: Sequence[Any], rtol: float, atol: float) -> str:
    """Compare outputs: structure, shape and dtype exactly, numbers within a tolerance.

    Args:
        wanted: Outputs of the case; arrays, sequences of arrays, or None.
        found: Outputs of the engine.
        rtol: Tolerance relative to ``wanted``.
        atol: Absolute tolerance.

    Returns:
        A description of the difference; empty if there is none.
    """
    if len(wanted) != len(found):
        return f"{len(found)} outputs, not {len(wanted)}"
    for number, (theirs, mine) in enumerate(zip(wanted, found, strict=True)):
        some = _one(theirs, mine, rtol, atol)
        if some:
            return f"output {number}: {some}"
    return ""


def _one(wanted: Any, found: Any, rtol: float, atol: float) -> str:
    sequences = isinstance(wanted, (list, tuple)), isinstance(found, (list, tuple))
    if all(sequences):
        return difference(wanted, found, rtol, atol)
    if wanted is None or found is None or any(sequences):
        return "" if wanted is found else f"{found!r}, not {wanted!r}"
    theirs, mine = np.asarray(wanted), np.asarray(found)
    if theirs.shape != mine.shape:
        return f"shape {mine.shape}, not {theirs.shape}"
    if theirs.dtype.kind in "OSU":
        return _texts(theirs, mine)
    if theirs.dtype != mine.dtype:
        return f"dtype {mine.dtype.name}, not {theirs.dtype.name}"
    rtol = max(rtol, BFLOAT16_RTOL) if theirs.dtype.name == "bfloat16" else rtol
    return _numbers(theirs, mine, rtol, atol)


def _texts(wanted: Any, found: Any) -> str:
    same = wanted.astype(str) == found.astype(str)
    return "" if bool(np.all(same)) else f"text {found.tolist()!r}, not {wanted.tolist()!r}"


def _numbers(wanted: Any, found: Any, rtol: float, atol: float) -> str:
    if is_foreign(wanted.dtype):
        wanted, found = wanted.astype(np.float32), found.astype(np.float32)
    with np.errstate(all="ignore"):
        close = np.isclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True)
    if bool(np.all(close)):
        return ""
    place = tuple(int(each) for each in np.argwhere(~close)[0]) if close.ndim else ()
    count = int(np.sum(~close))
    return f"{count} of {close.size} differ, at {place} {found[place]}, not {wanted[place]}"
