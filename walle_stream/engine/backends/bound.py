"""Kernels bound to their arrays: a step becomes a call without arguments.

Written against numpy's interface, so that cupy binds the same. What has no kernel
here runs the reference's and copies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from walle_stream.engine.backends.fast_erf import erf_into
from walle_stream.engine.backends.kernels import check_indices
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Step
from walle_stream.engine.region import Region, View
from walle_stream.errors import EngineError

type Run = Callable[[], object]

_UFUNCS: Final[Mapping[Operator, str]] = {
    Operator.ABS: "abs", Operator.NEG: "negative", Operator.SIGN: "sign",
    Operator.NOT: "invert", Operator.CEIL: "ceil", Operator.FLOOR: "floor",
    Operator.SQRT: "sqrt", Operator.EXP: "exp", Operator.LOG: "log",
    Operator.SIN: "sin", Operator.COS: "cos", Operator.TAN: "tan", Operator.ASIN: "arcsin",
    Operator.ACOS: "arccos", Operator.ATAN: "arctan", Operator.SINH: "sinh",
    Operator.COSH: "cosh", Operator.TANH: "tanh", Operator.ASINH: "arcsinh",
    Operator.ACOSH: "arccosh", Operator.ATANH: "arctanh", Operator.IS_NAN: "isnan",
    Operator.ADD: "add", Operator.SUB: "subtract", Operator.MUL: "multiply",
    Operator.MOD: "mod", Operator.FMOD: "fmod", Operator.MINIMUM: "minimum",
    Operator.MAXIMUM: "maximum", Operator.AND: "bitwise_and", Operator.OR: "bitwise_or",
    Operator.XOR: "bitwise_xor", Operator.SHIFT_LEFT: "left_shift",
    Operator.SHIFT_RIGHT: "right_shift", Operator.EQUAL: "equal", Operator.LESS: "less",
    Operator.LESS_EQUAL: "less_equal",
}  # fmt: skip

_REDUCTIONS: Final[Mapping[Operator, str]] = {
    Operator.SUM: "add", Operator.PROD: "multiply", Operator.REDUCE_MAX: "maximum",
    Operator.REDUCE_MIN: "minimum",
}  # fmt: skip


def bind(step: Step, inputs: Sequence[Array], output: Array) -> Run:
    """Make a call of a step.

    Args:
        step: Of one output.
        inputs: Views of the arrays that it reads.
        output: View of the array that it writes.

    Returns:
        Runs the step; raises ``EngineError`` as the reference does.
    """
    narrow = any(
        each.dtype.isbuiltin != 1 or each.dtype == np.float16 for each in (*inputs, output)
    )
    special = _BINDERS.get(step.operator)
    if special is not None:
        found = special(step, inputs, output, narrow)
        if found is not None:
            return found
    ufunc = _UFUNCS.get(step.operator)
    if ufunc is not None and not narrow:
        function = getattr(np, ufunc)
        given = tuple(inputs)
        return lambda: function(*given, out=output)
    return lambda: np.copyto(output, compute(step, inputs))


def region_views(region: Region, source: Array, target: Array) -> tuple[Array, Array]:
    """Give both sides of a region.

    Args:
        region: Of any number of axes.
        source: What it reads, row-major.
        target: What it writes, row-major.

    Returns:
        Views of the region's size: of the target, of the source.
    """
    return (
        strided(target, region.size, region.destination),
        strided(source, region.size, region.source),
    )


def strided(array: Array, shape: Sequence[int], view: View) -> Array:
    """Give a view of an array; its bounds were validated when the program was planned.

    Args:
        array: Row-major.
        shape: Of the view.
        view: In elements.

    Returns:
        A view.
    """
    item = array.dtype.itemsize
    # numpy cannot make views of dtypes that it does not know: of plain bytes as wide it can
    plain = array if array.dtype.isbuiltin == 1 else array.view(f"u{item}")
    flat = plain.reshape(-1)
    # the step of an axis of one element may be any number, also one that numpy cannot take
    steps = [step * item if size > 1 else 0 for size, step in zip(shape, view.strides, strict=True)]
    seen = np.lib.stride_tricks.as_strided(flat[view.offset :], tuple(shape), tuple(steps))
    return seen if plain is array else seen.view(array.dtype)


def _raster(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del narrow
    fill = step.parameters.get("fill")
    pairs = [region_views(each, inputs[each.input], output) for each in step.regions]
    covered = sum(each.count for each in step.regions) >= output.size
    accumulates = bool(step.parameters.get("accumulate"))
    if accumulates:

        def add() -> None:
            output.fill(0 if fill is None else fill)
            for target, source in pairs:
                np.add(target, source, out=target)

        return add
    if fill is None or covered:
        if len(pairs) == 1:
            target, source = pairs[0]
            return lambda: np.copyto(target, source)
        return lambda: _copy(pairs)

    def filled() -> None:
        output.fill(fill)
        _copy(pairs)

    return filled


def _copy(pairs: Sequence[tuple[Array, Array]]) -> None:
    for target, source in pairs:
        np.copyto(target, source)


def _reduce(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    (x,) = inputs
    axes = tuple(step.parameters["axes"])
    if narrow or not x.size or x.dtype.kind == "b":
        return None
    function = getattr(np, _REDUCTIONS[step.operator]).reduce
    return lambda: function(x, axis=axes, out=output, keepdims=True)


def _matmul(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del step
    if narrow:
        return None
    x, y = inputs
    if all(each == 1 for each in x.shape[:-2]):
        # a stack of one: numpy loops over stacks itself, and hands one matrix to BLAS
        left, right = x.reshape(x.shape[-2:]), y.reshape(y.shape[-2:])
        target = output.reshape(output.shape[-2:])
        return lambda: np.matmul(left, right, out=target)
    return lambda: np.matmul(x, y, out=output)


def _divide(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del step
    if narrow or output.dtype.kind != "f":
        return None
    x, y = inputs
    return lambda: np.divide(x, y, out=output)


def _power(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del step
    if narrow or output.dtype.kind != "f":
        return None
    x, y = inputs
    if (y.size and y.strides == (0,) * y.ndim) or y.size == 1:
        return lambda: (
            np.multiply(x, x, out=output)
            if y.flat[0] == 2  # noqa: PLR2004  # the square, by far the most common power
            else np.power(x, y, out=output)
        )
    return lambda: np.power(x, y, out=output)


def _select(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del step
    if narrow:
        return None
    condition, x, y = inputs
    if np.may_share_memory(output, condition) or np.may_share_memory(output, x):
        return lambda: np.copyto(output, np.where(condition, x, y))

    def select() -> None:
        if output is not y:
            np.copyto(output, y)
        np.copyto(output, x, where=condition)

    return select


def _cast(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del step
    (x,) = inputs
    if (
        narrow
        or "b" in {x.dtype.kind, output.dtype.kind}
        or (x.dtype.kind == "f" and output.dtype.kind in "iu")
    ):
        return None
    return lambda: np.copyto(output, x, casting="unsafe")


def _erf(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del step, narrow
    (x,) = inputs
    if x.dtype != np.float32:
        return None
    return lambda: erf_into(x, output)


def _round(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del step
    if narrow or output.dtype.kind != "f":
        return None
    (x,) = inputs
    return lambda: np.rint(x, out=output)


def _take(step: Step, inputs: Sequence[Array], output: Array, narrow: bool) -> Run | None:
    del narrow
    data, indices = inputs
    size = data.shape[1]

    def take() -> None:
        try:
            check_indices(indices, size)
        except IndexError as error:
            raise EngineError(f"node {step.origin!r}: take of {data.shape}: {error}") from error
        np.take(data, indices, axis=1, out=output, mode="clip")

    return take if size else None


_BINDERS: Final[Mapping[Operator, Callable[[Step, Sequence[Array], Array, bool], Run | None]]] = {
    Operator.RASTER: _raster,
    **dict.fromkeys(_REDUCTIONS, _reduce),
    Operator.MATMUL: _matmul,
    Operator.DIV: _divide,
    Operator.POW: _power,
    Operator.SELECT: _select,
    Operator.CAST: _cast,
    Operator.ERF: _erf,
    Operator.ROUND: _round,
    Operator.TAKE: _take,
}
