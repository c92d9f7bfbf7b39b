"""Whether ours gives what onnxruntime gives, and what it refuses."""

import math
import re

import numpy as np

from walle_stream.testing.onnx.comparison import difference

RTOL = 1e-3
"""Of numbers with a fraction, as ONNX's own runner has it; others must be equal."""

ATOL = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-4}
"""Of the largest number of an output: sums are made in another order, and what is close to 0 beside
large numbers is what is left of them."""

FLOOR = 2.0**-22
"""Never less than this: onnxruntime's sigmoid of float32 has steps of 2**-24."""

SPREAD_MAX = 0.1
"""A model that quantises what it computes makes a step of the last place a step of 1 in 256, and
the next layer more. It is near where ours is no further from onnxruntime than onnxruntime is from
itself with weights that are moved by their last places, unless that is more than this."""

# what a child's last line has before the class of its error
_PREFIX = re.compile(r"^exit code \d+: [\w.]*\.(?=\w+: )")
_OPERATOR = re.compile(r"\(([\w.:]+), opset \d+\)")


def different(found, wanted):
    """Say what is different from onnxruntime's outputs; an empty text where nothing is."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}"
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        atol = max(ATOL[theirs.dtype.name] * _top(theirs), FLOOR) if _is_real(theirs) else 0.0
        some = difference([theirs], [mine], RTOL if _is_real(theirs) else 0.0, atol)
        if some:
            return f"output {number}{some.removeprefix('output 0')}"
    return ""


def distance(found, wanted):
    """Give ``max|a-b| / max|b|`` of the worst output; without fractions, the share that differs."""
    if len(found) != len(wanted):
        return math.inf
    return max((_away(*pair) for pair in zip(found, wanted, strict=True)), default=0.0)


def verdict(failed, compared):
    """Judge one model.

    Args:
        failed: By engine, why it did not run the model.
        compared: ``reason``, what is different, ``away``, and ``spread`` where it was needed.

    Returns:
        ``verdict`` (agree, near, differ, refused, or no oracle), ``operator``, ``reason``, and
        what was compared.
    """
    if "onnxruntime" in failed:
        return {"verdict": "no oracle", "operator": "", "reason": failed["onnxruntime"]}
    if "walle" in failed:
        reason = _PREFIX.sub("", failed["walle"])
        named = _OPERATOR.search(reason)
        return {"verdict": "refused", "operator": named[1] if named else "", "reason": reason}
    kind = "differ" if compared["reason"] else "agree"
    if compared["reason"] and compared["away"] <= compared["spread"] <= SPREAD_MAX:
        kind = "near"
    return {"verdict": kind, "operator": "", **compared}


def _away(mine, theirs):
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return math.inf
    if not _is_real(theirs):
        return float(np.mean(mine != theirs)) if theirs.size else 0.0
    if not np.array_equal(np.isfinite(mine), np.isfinite(theirs)):
        return math.inf
    return _top(mine - theirs) / (_top(theirs) or 1.0)


def _is_real(array):
    return array.dtype.kind == "f"


def _top(array):
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
