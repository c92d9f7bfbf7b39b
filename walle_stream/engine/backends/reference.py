"""The reference backend: one numpy expression for each atomic operator.

It defines the meaning of the operators, and every other backend must equal it. No buffer is reused,
no step writes in place, and a raster computes the address of each element.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.clock import monotonic_ms
from walle_stream.engine.backends.casting import cast
from walle_stream.engine.backends.kernels import (
    UFUNCS,
    argsort,
    check_indices,
    divide,
    erf,
    highest,
    lowest,
    matmul,
    nearest,
    power,
)
from walle_stream.engine.backends.text import compute_text
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Program, Step, Tensor
from walle_stream.engine.region import Region, View
from walle_stream.engine.rules import TEXT
from walle_stream.errors import EngineError


def compute(step: Step, inputs: Sequence[Array]) -> Array:
    """Run one step and return its output, which is a new array.

    Raises:
        EngineError: An index is out of range, or memory is short; the message names the node.
    """
    try:
        with np.errstate(all="ignore"):
            result = np.asarray(_KERNELS[step.operator](inputs, step.parameters))
            return result.astype(step.output.dtype, copy=False)
    except (IndexError, ValueError, OverflowError, MemoryError, TypeError) as error:
        shapes = ", ".join(f"{array.dtype.name}{list(array.shape)}" for array in inputs)
        reason = str(error) or type(error).__name__
        raise EngineError(f"node {step.origin!r}: {step.operator} of {shapes}: {reason}") from error


def raster(inputs: Sequence[Array], parameters: Mapping[str, Any]) -> Array:
    """Move elements between arrays of one dtype, address by address."""
    shape, dtype = parameters["shape"], parameters["dtype"]
    fill = parameters.get("fill")
    output = np.full(prod(shape), zero(dtype) if fill is None else fill, dtype)
    flat = [np.ascontiguousarray(array).reshape(-1) for array in inputs]
    for region in parameters["regions"]:
        moved = flat[region.input][addresses(region, region.source)]
        target = addresses(region, region.destination)
        output[target] = output[target] + moved if parameters.get("accumulate") else moved
    return output.reshape(shape)


def addresses(region: Region, view: View) -> Array:
    """Return the int64 address of every coordinate of a region in one of its views, in order."""
    result = np.array([view.offset])
    for size, stride in zip(region.size, view.strides, strict=True):
        result = np.add.outer(result, np.arange(size) * stride)
    return result.reshape(-1)


def zero(dtype: DType) -> Any:
    """Return the zero of a dtype; for strings it is the empty string."""
    return "" if dtype == TEXT else np.zeros((), dtype)[()]


def _reduce(
    function: Any, initial: Callable[[DType], Any], inputs: Sequence[Array],
    parameters: Mapping[str, Any],
) -> Array:  # fmt: skip
    x, axes = inputs[0], tuple(parameters["axes"])
    narrow = x.dtype.kind not in "iub" and x.dtype.itemsize < 4  # noqa: PLR2004  # float32
    wide = x.astype(np.float32) if narrow else x
    kept = {"dtype": wide.dtype} if function in {np.sum, np.prod} else {}
    result = function(wide, axis=axes, keepdims=True, initial=initial(wide.dtype), **kept)
    return np.asarray(result).astype(x.dtype)


def _arg(function: Any, inputs: Sequence[Array], parameters: Mapping[str, Any]) -> Array:
    x, axis = inputs[0], parameters["axis"]
    if not parameters.get("last"):
        return np.asarray(function(x, axis=axis, keepdims=True))
    return x.shape[axis] - 1 - function(np.flip(x, axis), axis=axis, keepdims=True)


_COMBINE: Final[Mapping[str, Any]] = {
    "add": np.add, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
}  # fmt: skip


def _put(inputs: Sequence[Array], parameters: Mapping[str, Any]) -> Array:
    data, updates = inputs[0], inputs[2]
    indices = check_indices(inputs[1], data.shape[0])
    output = data.copy()
    combine = _COMBINE.get(parameters.get("reduction", "none"))
    if combine is None:
        output[indices] = updates
    else:
        combine.at(output, indices, updates)
    return output


def _random(_inputs: Sequence[Array], parameters: Mapping[str, Any]) -> Array:
    seed, shape, dtype = parameters.get("seed"), parameters["shape"], parameters["dtype"]
    if seed is not None:
        # ONNX's test cases of Dropout expect the numbers of numpy's legacy generator
        drawn = np.asarray(np.random.RandomState(seed).random(shape))
    elif dtype.kind == "f" and dtype.itemsize >= 4:  # noqa: PLR2004  # float32
        # drawn in its own precision, since a float64 just below 1 would be rounded to 1
        return np.random.default_rng().random(shape, dtype)
    else:
        drawn = np.random.default_rng().random(shape)
    return np.minimum(drawn.astype(dtype), np.nextafter(dtype.type(1), dtype.type(0)))


def _of(function: Any) -> Callable[..., Array]:
    return lambda inputs, _parameters: function(*inputs)


_KERNELS: Final[Mapping[Operator, Callable[[Sequence[Array], Mapping[str, Any]], Any]]] = {
    **{operator: _of(getattr(np, name)) for operator, name in UFUNCS.items()},
    Operator.RASTER: raster,
    Operator.ROUND: _of(nearest),
    Operator.ERF: _of(erf),
    Operator.CAST: lambda inputs, parameters: cast(inputs[0], **parameters),
    Operator.BITCAST: lambda inputs, parameters: np.asarray(inputs[0], order="C").view(
        parameters["dtype"]
    ),
    Operator.DIV: _of(divide),
    Operator.POW: _of(power),
    Operator.SELECT: _of(np.where),
    Operator.SUM: partial(_reduce, np.sum, lambda dtype: dtype.type(0)),
    Operator.PROD: partial(_reduce, np.prod, lambda dtype: dtype.type(1)),
    Operator.REDUCE_MAX: partial(_reduce, np.max, lowest),
    Operator.REDUCE_MIN: partial(_reduce, np.min, highest),
    Operator.ARG_MAX: partial(_arg, np.argmax),
    Operator.ARG_MIN: partial(_arg, np.argmin),
    Operator.MATMUL: _of(matmul),
    Operator.ARGSORT: argsort,
    Operator.TAKE: _of(lambda data, indices: data[:, check_indices(indices, data.shape[1])]),
    Operator.PUT: _put,
    Operator.NONZERO: lambda inputs, _: np.flatnonzero(inputs[0]),
    Operator.RANDOM: _random,
    Operator.TEXT: lambda inputs, parameters: compute_text(inputs, parameters)[0],
}


type Watch = Callable[[Step, float], None]
"""Called with each step that has run, and its time in milliseconds."""


class Interpreter:
    """The backend of the reference kernels."""

    name = "reference"
    compute = staticmethod(compute)

    def plan(self, program: Program) -> "_InterpretedPlan":
        """Prepare a program; see ``engine.module.Backend``."""
        return _InterpretedPlan(program)


class _InterpretedPlan:
    """A program that runs unoptimised. Thread-safe; blocks."""

    def __init__(self, program: Program) -> None:
        """Take over a program."""
        self.program = program

    @property
    def nbytes(self) -> int:
        """Bytes of all computed tensors: none is freed before the end of a run."""
        tensors = (step.output for step in self.program.steps)
        return sum(tensor.nbytes for tensor in tensors if tensor.has_shape and tensor.data is None)

    def run(self, inputs: Sequence[Array], watch: Watch | None = None) -> list[Array]:
        """Run the program; see ``engine.module.Plan`` and ``engine.profiling``."""
        values: dict[Tensor, Array] = dict(zip(self.program.inputs, inputs, strict=True))
        for step in self.program.steps:
            operands = [
                tensor.data if tensor.data is not None else values[tensor] for tensor in step.inputs
            ]
            start_ms = 0.0 if watch is None else monotonic_ms()
            values[step.output] = compute(step, operands)
            if watch is not None:
                watch(step, monotonic_ms() - start_ms)
        # copies belong to the caller, even if an output is an input or occurs twice
        return [
            np.array(tensor.data if tensor.data is not None else values[tensor])
            for tensor in self.program.outputs
        ]
