"""Kernels bound to their arrays: a step becomes a call without arguments.

Written against numpy's interface: a ``Library`` says which module of arrays is meant,
and has kernels of its own where that differs. All is decided when a step is bound.
What has no kernel runs the reference's and copies.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from walle_stream.engine.backends.fast_erf import erf_into
from walle_stream.engine.backends.kernels import check_indices
from walle_stream.engine.backends.library import Library, Run, region_views
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.dtypes import is_foreign
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Step
from walle_stream.errors import EngineError

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


def bind(step: Step, inputs: Sequence[Array], output: Array, library: Library | None = None) -> Run:
    """Make a call of a step.

    Args:
        step: Of one output.
        inputs: Views of the arrays that it reads.
        output: View of the array that it writes.
        library: Whose arrays they are; numpy's where it is not said.

    Returns:
        Runs the step; raises ``EngineError`` as the reference does.
    """
    library = library or NUMPY
    narrow = any(library.is_narrow(each.dtype) for each in (*step.inputs, *step.outputs))
    special = library.binders.get(step.operator)
    if special is not None:
        found = special(library, step, inputs, output, narrow)
        if found is not None:
            return found
    ufunc = _UFUNCS.get(step.operator)
    if ufunc is not None and not narrow:
        function = getattr(library.xp, ufunc)
        given = tuple(inputs)
        return lambda: function(*given, out=output)
    return library.fallback(step, inputs, output)


def bind_raster(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    """Bind a raster: strided copies, one a region. See ``Binder``."""
    del narrow
    xp = library.xp
    fill = step.parameters.get("fill")
    pairs = [region_views(each, inputs[each.input], output, xp) for each in step.regions]
    covered = sum(each.count for each in step.regions) >= output.size
    accumulates = bool(step.parameters.get("accumulate"))
    copyto = xp.copyto
    if accumulates:
        add_into = xp.add
        clear = library.filling(output, 0 if fill is None else fill, step.output.dtype)

        def add() -> None:
            clear()
            for target, source in pairs:
                add_into(target, source, out=target)

        return add
    if fill is None or covered:
        if len(pairs) == 1:
            target, source = pairs[0]
            return lambda: copyto(target, source)
        return lambda: _copy(copyto, pairs)
    prepare = library.filling(output, fill, step.output.dtype)

    def filled() -> None:
        prepare()
        _copy(copyto, pairs)

    return filled


def _copy(copyto: Callable[..., Any], pairs: Sequence[tuple[Array, Array]]) -> None:
    for target, source in pairs:
        copyto(target, source)


def _reduce(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    del library
    (x,) = inputs
    axes = tuple(step.parameters["axes"])
    if narrow or not x.size or x.dtype.kind == "b":
        return None
    function = getattr(np, _REDUCTIONS[step.operator]).reduce
    return lambda: function(x, axis=axes, out=output, keepdims=True)


def bind_matmul(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    """Bind a product of matrices, one of a stack of one at once. See ``Binder``."""
    del step
    if narrow:
        return None
    x, y = inputs
    matmul = library.xp.matmul
    if all(each == 1 for each in x.shape[:-2]):
        # a stack of one: numpy loops over stacks itself, and hands one matrix to BLAS
        first = (0,) * (x.ndim - 2)
        left, right, target = x[first], y[first], output[first]
        return lambda: matmul(left, right, out=target)
    return lambda: matmul(x, y, out=output)


def bind_divide(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    """Bind a division of floats. See ``Binder``."""
    del step
    if narrow or output.dtype.kind != "f":
        return None
    x, y = inputs
    divide = library.xp.divide
    return lambda: divide(x, y, out=output)


def _power(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    del library, step
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


def _select(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    del library, step
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


def _cast(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    del library, step
    (x,) = inputs
    if (
        narrow
        or "b" in {x.dtype.kind, output.dtype.kind}
        or (x.dtype.kind == "f" and output.dtype.kind in "iu")
    ):
        return None
    return lambda: np.copyto(output, x, casting="unsafe")


def _erf(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    del library, step, narrow
    (x,) = inputs
    if x.dtype != np.float32:
        return None
    return lambda: erf_into(x, output)


def bind_round(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    """Bind rounding of floats. See ``Binder``."""
    del step
    if narrow or output.dtype.kind != "f":
        return None
    (x,) = inputs
    rint = library.xp.rint
    return lambda: rint(x, out=output)


def _take(
    library: Library, step: Step, inputs: Sequence[Array], output: Array, narrow: bool
) -> Run | None:
    del library, narrow
    data, indices = inputs
    size = data.shape[1]

    def take() -> None:
        try:
            check_indices(indices, size)
        except IndexError as error:
            raise EngineError(f"node {step.origin!r}: take of {data.shape}: {error}") from error
        np.take(data, indices, axis=1, out=output, mode="clip")

    return take if size else None


def _is_narrow(dtype: DType) -> bool:
    return bool(is_foreign(dtype) or dtype == np.float16)


def _filling(output: Array, fill: Any, dtype: DType) -> Run:
    del dtype
    return lambda: output.fill(fill)


def _fallback(step: Step, inputs: Sequence[Array], output: Array) -> Run:
    return lambda: np.copyto(output, compute(step, inputs))


NUMPY: Final = Library(
    xp=np,
    binders={
        Operator.RASTER: bind_raster,
        **dict.fromkeys(_REDUCTIONS, _reduce),
        Operator.MATMUL: bind_matmul,
        Operator.DIV: bind_divide,
        Operator.POW: _power,
        Operator.SELECT: _select,
        Operator.CAST: _cast,
        Operator.ERF: _erf,
        Operator.ROUND: bind_round,
        Operator.TAKE: _take,
    },
    is_narrow=_is_narrow,
    filling=_filling,
    fallback=_fallback,
)
