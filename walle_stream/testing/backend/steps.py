"""One-step programs for the conformance suite of backends: construction, runs, comparison."""

from collections.abc import Sequence
from math import inf, nan, prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.module import Backend
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Program, Step, Tensor
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import infer, is_floating, is_foreign, is_integer
from walle_stream.testing.stages import verify_program

ORIGIN: Final = "the step under test"
"""Name of the node in a step's error."""

ULPS_MAX: Final = 8
"""Error limit of functions that hardware does not round, in units in the last place."""


def dtype_of(name: str) -> DType:
    """Return a dtype of numpy or of ``ml_dtypes`` by its name."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # noqa: PLC0415  # an extra

        found: DType = np.dtype(getattr(ml_dtypes, name))
        return found


def step_of(operator: Operator, shapes: Sequence[tuple[Shape, DType]], **parameters: Any) -> Step:
    """Return a step with new input tensors.

    Args:
        operator: Any operator.
        shapes: Shapes and dtypes of the inputs.
        **parameters: Parameters of the operator.
    """
    inputs = tuple(Tensor(shape, dtype) for shape, dtype in shapes)
    output = Tensor(*infer(operator, inputs, parameters))
    return Step(operator, inputs, (output,), parameters, ORIGIN)


def run_step(
    backend: Backend, operator: Operator, inputs: Sequence[Array], **parameters: Any
) -> Array:
    """Plan and run a program of one step."""
    step = step_of(operator, [(each.shape, each.dtype) for each in inputs], **parameters)
    program = Program([*step.inputs], [step.output], [step])
    verify_program(program)
    (made,) = backend.plan(program).run(inputs)
    return made


def elements(dtype: DType, shape: Shape, seed: int, *, special: bool = True) -> Array:
    """Return an array of random elements, of every kind that a dtype has.

    Args:
        dtype: Any dtype.
        shape: Shape of the array.
        seed: Seed of the random choices.
        special: Whether to include infinities, nan and the ends of the range.
    """
    draw = np.random.default_rng([seed, prod(shape), dtype.num])
    count = prod(shape)
    if dtype == np.dtype(object):
        words = np.array(["", "a", "b", "ab", "ä", "a b"], object)
        return words[draw.integers(0, len(words), count)].reshape(shape)
    if dtype.kind == "b":
        return draw.integers(0, 2, shape).astype(bool)
    if is_foreign(dtype) and dtype.itemsize == 1:
        return _narrow(dtype, draw, count).reshape(shape)
    if is_integer(dtype):
        ends = np.iinfo(dtype)
        made = draw.integers(max(ends.min, -9), 10, count).astype(dtype)
        values: list[Any] = [ends.min, ends.max, ends.max - 1, 0, 1]
    else:
        made = (draw.standard_normal(count) * 3).astype(dtype)
        values = [inf, -inf, nan, 0.0, -0.0, 1.0, -1.0]
    if special and count:
        places = draw.random(count) < 0.3  # noqa: PLR2004  # enough of each
        chosen = draw.integers(0, len(values), count)
        made[places] = np.array(values, dtype)[chosen[places]]
    return made.reshape(shape)


def _narrow(dtype: DType, draw: np.random.Generator, count: int) -> Array:
    """Draw elements of a dtype of at most one byte by their codes, so that all may occur."""
    if is_integer(dtype):
        bits = int(dtype.name.removeprefix("u").removeprefix("int"))
        low = 0 if dtype.name.startswith("u") else -(1 << bits - 1)
        return draw.integers(low, low + (1 << bits), count).astype(np.int8).astype(dtype)
    codes = 16 if dtype.name == "float4_e2m1fn" else 256
    return draw.integers(0, codes, count).astype(np.uint8).view(dtype)


def difference(wanted: Array, found: Array, ulps: float = 0, *, least: float = 0) -> str:
    """Compare two outputs.

    Args:
        wanted: The wanted output, with its shape and dtype.
        found: The backend's output.
        ulps: Allowed difference of floats in units in the last place; 0 demands equality, even of
            the signs of zeros.
        least: Smallest magnitude from which a unit is computed; by default the least normal float.

    Returns:
        A description of the difference; empty if there is none.
    """
    if not isinstance(found, np.ndarray):
        return f"{type(found).__name__}, no array"
    if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
        return f"{found.dtype.name}{found.shape}, not {wanted.dtype.name}{wanted.shape}"
    if not is_floating(wanted.dtype):
        same = wanted == found
        return "" if np.all(same) else _first(wanted, found, np.asarray(same))
    theirs, mine = wanted.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (theirs == mine) | (np.isnan(theirs) & np.isnan(mine))
        if ulps:
            reach = np.maximum(np.abs(theirs), least or least_normal(wanted.dtype))
            same |= np.abs(theirs - mine) <= ulps * unit(wanted.dtype) * reach
        else:
            same &= np.isnan(theirs) | (np.signbit(theirs) == np.signbit(mine))
    return "" if np.all(same) else _first(wanted, found, np.asarray(same))


def unit(dtype: DType) -> float:
    """Return a floating dtype's machine epsilon: the distance from 1 to the next float."""
    return {"bfloat16": 2.0**-7}.get(dtype.name) or float(np.finfo(dtype).eps)


def least_normal(dtype: DType) -> float:
    """Return a floating dtype's least normal float."""
    return {"bfloat16": 2.0**-126}.get(dtype.name) or float(np.finfo(dtype).tiny)


def _first(wanted: Array, found: Array, same: Array) -> str:
    place = tuple(int(each) for each in np.argwhere(~same)[0])
    return f"{int((~same).sum())} differ, at {place} {found[place]!r}, not {wanted[place]!r}"
