"""Kernels bound to their arrays: a step becomes a call without arguments.

The kernels use numpy's interface. A ``Library`` names the module of arrays, and has kernels of its
own where the module differs from numpy. All choices are made when a step is bound. A step without
a kernel runs the reference's kernel and copies the result.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from walle_stream.engine.backends.kernels import UFUNCS, check_indices, erf_into
from walle_stream.engine.backends.library import Binding, Library, Run, strided
from walle_stream.engine.backends.reference import compute
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Step
from walle_stream.engine.rules import is_foreign
from walle_stream.errors import EngineError

_REDUCTIONS: Final[Mapping[Operator, str]] = {
    Operator.SUM: "add", Operator.PROD: "multiply", Operator.REDUCE_MAX: "maximum",
    Operator.REDUCE_MIN: "minimum",
}  # fmt: skip


def bind(step: Step, inputs: Sequence[Array], output: Array, library: Library | None = None) -> Run:
    """Return a call that runs a step of one output on views of its inputs and its output.

    The call raises ``EngineError`` as the reference does. The arrays are numpy's by default, or
    those of ``library``.
    """
    library = library or NUMPY
    narrow = any(library.is_narrow(tensor.dtype) for tensor in (*step.inputs, *step.outputs))
    binding = Binding(library, step, inputs, output, narrow)
    binder = library.binders.get(step.operator)
    run = None if binder is None else binder(binding)
    if run is None and not narrow and step.operator in UFUNCS:
        run = _function(binding, UFUNCS[step.operator])
    return run or library.fallback(step, inputs, output)


def _function(binding: Binding, name: str) -> Run:
    function, inputs, output = getattr(binding.library.xp, name), binding.inputs, binding.output
    if len(inputs) == 1:
        (x,) = inputs
        return lambda: function(x, out=output)
    x, y = inputs
    return lambda: function(x, y, out=output)


def bind_raster(binding: Binding) -> Run:
    """Bind a raster: one strided copy per region."""
    library, step, output = binding.library, binding.step, binding.output
    xp, fill = library.xp, step.parameters.get("fill")
    # a constant of another layout is copied once, not for each region; reshape alone keeps strides
    # of 0, and regions count in row-major elements
    sources = [
        (array if array.flags.c_contiguous else array.copy()).reshape(-1)
        for array in binding.inputs
    ]
    pairs = [
        (strided(output, region.size, region.destination, xp),
         strided(sources[region.input], region.size, region.source, xp))
        for region in step.regions
    ]  # fmt: skip
    covered = sum(region.count for region in step.regions) >= output.size
    copyto = xp.copyto
    if step.parameters.get("accumulate"):
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


def _reduce(binding: Binding) -> Run | None:
    (x,), output = binding.inputs, binding.output
    axes = tuple(binding.step.parameters["axes"])
    if binding.narrow or not x.size or x.dtype.kind == "b":
        return None
    function = getattr(np, _REDUCTIONS[binding.step.operator]).reduce
    return lambda: function(x, axis=axes, out=output, keepdims=True)


def bind_matmul(binding: Binding) -> Run | None:
    """Bind a matrix product; a stack of one matrix goes directly to BLAS."""
    if binding.narrow:
        return None
    (x, y), output, matmul = binding.inputs, binding.output, binding.library.xp.matmul
    if all(size == 1 for size in x.shape[:-2]):
        # numpy loops over a stack itself, but passes a single matrix to BLAS
        first = (0,) * (x.ndim - 2)
        left, right, target = x[first], y[first], output[first]
        return lambda: matmul(left, right, out=target)
    return lambda: matmul(x, y, out=output)


def bind_float(binding: Binding) -> Run | None:
    """Bind a division or rounding of floats; for integers the library's functions differ."""
    if binding.narrow or binding.output.dtype.kind != "f":
        return None
    return _function(binding, "divide" if binding.step.operator is Operator.DIV else "rint")


def _power(binding: Binding) -> Run | None:
    output = binding.output
    if binding.narrow or output.dtype.kind != "f":
        return None
    x, y = binding.inputs
    if (y.size and y.strides == (0,) * y.ndim) or y.size == 1:
        return lambda: (
            np.multiply(x, x, out=output)
            if y.flat[0] == 2  # noqa: PLR2004  # the square, by far the most common power
            else np.power(x, y, out=output)
        )
    return lambda: np.power(x, y, out=output)


def _select(binding: Binding) -> Run | None:
    if binding.narrow:
        return None
    (condition, x, y), output = binding.inputs, binding.output
    if np.may_share_memory(output, condition) or np.may_share_memory(output, x):
        return lambda: np.copyto(output, np.where(condition, x, y))

    def select() -> None:
        if output is not y:
            np.copyto(output, y)
        np.copyto(output, x, where=condition)

    return select


def _cast(binding: Binding) -> Run | None:
    (x,), output = binding.inputs, binding.output
    kinds = x.dtype.kind, output.dtype.kind
    if binding.narrow or "b" in kinds or (kinds[0] == "f" and kinds[1] in "iu"):
        return None
    return lambda: np.copyto(output, x, casting="unsafe")


def _erf(binding: Binding) -> Run | None:
    (x,), output = binding.inputs, binding.output
    return (lambda: erf_into(x, output)) if x.dtype == np.float32 else None


def _take(binding: Binding) -> Run | None:
    (data, indices), output, origin = binding.inputs, binding.output, binding.step.origin
    size = data.shape[1]

    def take() -> None:
        try:
            check_indices(indices, size)
        except IndexError as error:
            raise EngineError(f"node {origin!r}: take of {data.shape}: {error}") from error
        np.take(data, indices, axis=1, out=output, mode="clip")

    return take if size else None


NUMPY: Final = Library(
    xp=np,
    binders={
        Operator.RASTER: bind_raster,
        **dict.fromkeys(_REDUCTIONS, _reduce),
        Operator.MATMUL: bind_matmul,
        Operator.DIV: bind_float,
        Operator.POW: _power,
        Operator.SELECT: _select,
        Operator.CAST: _cast,
        Operator.ERF: _erf,
        Operator.ROUND: bind_float,
        Operator.TAKE: _take,
    },
    is_narrow=lambda dtype: is_foreign(dtype) or dtype == np.float16,
    filling=lambda output, fill, _dtype: lambda: output.fill(fill),
    fallback=lambda step, inputs, output: lambda: np.copyto(output, compute(step, inputs)),
)
