"""Rules of the operators on a guest's lazy tensors, with numpy's meaning.

They differ from ONNX: a plain number does not widen a tensor (NEP 50), and integers become float32
if an operator needs floats.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.activations import sigmoid
from walle_stream.engine.lowering.addressing import take, wrapped
from walle_stream.engine.lowering.builder import Builder, common_shape
from walle_stream.engine.lowering.normalization import softmax
from walle_stream.engine.lowering.products import multiply
from walle_stream.engine.lowering.registry import axis_of
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import FLOAT32, INT64
from walle_stream.errors import DTypeError, ShapeError
from walle_stream.wire.graph import ITEM_BYTES, MAX_ELEMENTS

type GuestRule = Callable[[Builder, Sequence[Tensor], Mapping[str, Any]], Tensor]

_MACS_PER_ELEMENT: Final = 32  # multiply-adds of a matrix product in the time of one element
_DIGITS_MAX: Final = 15


def check_size(operator: str, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> int:
    """Return the number of elements that an operation will compute, at least 1.

    Raises:
        ShapeError: The output would be too large, such as two vectors broadcast to a huge matrix.
    """
    shapes = [tensor.shape for tensor in inputs]
    work = max((tensor.size for tensor in inputs), default=0)
    if operator == "matmul":
        left, right = ((1, *shape) if len(shape) == 1 else shape for shape in shapes)
        count = prod(common_shape(left[:-2], right[:-2])) * left[-2] * right[-1]
        work = max(work, count * left[-1] // _MACS_PER_ELEMENT)
    elif operator == "take":
        size = shapes[0][_number(parameters, "axis") or 0]
        count = inputs[0].size // max(size, 1) * inputs[1].size
    elif operator == "concat":
        count = sum(tensor.size for tensor in inputs)
    else:
        count = prod(common_shape(*shapes))
    if count > MAX_ELEMENTS:
        raise ShapeError(f"too many elements: {count}")
    return int(max(work, count, 1))


def _number(parameters: Mapping[str, Any], name: str) -> int | None:
    value = parameters.get(name)
    if value is not None and type(value) is not int:
        raise DTypeError(f"{name} is a whole number")
    return value


def _numbers(parameters: Mapping[str, Any], name: str) -> list[int] | None:
    value = parameters.get(name)
    if value is None:
        return None
    if type(value) is not list or any(type(element) is not int for element in value):
        raise DTypeError(f"{name} is a list of whole numbers")
    return value


def _common(left: Tensor, right: Tensor) -> DType:
    kinds = left.dtype.kind + right.dtype.kind
    if left.rank and not right.rank and left.dtype.kind == "f":
        return left.dtype
    if right.rank and not left.rank and right.dtype.kind == "f":
        return right.dtype
    if left.dtype != right.dtype and "f" in kinds:
        wide = "float64" if "float64" in {left.dtype.name, right.dtype.name} else "float32"
        return np.dtype(wide)
    return np.result_type(left.dtype, right.dtype)


def _floating(builder: Builder, x: Tensor) -> Tensor:
    return x if x.dtype.kind == "f" else builder.cast(x, FLOAT32)


def _binary(operator: Operator, *, floats: bool = False) -> GuestRule:
    def rule(builder: Builder, inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Tensor:
        left, right = (_floating(builder, tensor) if floats else tensor for tensor in inputs)
        dtype = _common(left, right)
        return builder.binary(operator, builder.cast(left, dtype), builder.cast(right, dtype))

    return rule


def _unary(operator: Operator, *, floats: bool = True) -> GuestRule:
    def rule(builder: Builder, inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Tensor:
        (x,) = inputs
        return builder.unary(operator, _floating(builder, x) if floats else x)

    return rule


def _matmul(builder: Builder, inputs: Sequence[Tensor], _: Mapping[str, Any]) -> Tensor:
    dtype = _common(*inputs)
    return multiply(builder, *(builder.cast(x, dtype) for x in inputs))


def _softmax(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    x = _floating(builder, inputs[0])
    if not x.rank:
        return builder.reshape(_softmax(builder, [builder.reshape(x, (1,))], parameters), ())
    return softmax(builder, x, [axis_of(_number(parameters, "axis") or 0, x.rank)])


def _round(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    (x,) = inputs
    digits = _number(parameters, "digits") or 0
    if not 0 <= digits <= _DIGITS_MAX:
        raise DTypeError(f"digits are 0 to {_DIGITS_MAX}, not {digits}")
    if x.dtype.kind != "f":
        return x
    if not digits:
        return builder.round(x)
    scale = 10.0**digits
    return builder.div(builder.round(builder.mul(x, scale)), scale)


def _axes(x: Tensor, parameters: Mapping[str, Any]) -> list[int]:
    axis = _number(parameters, "axis")
    if axis is None:
        return list(range(x.rank))
    # numpy treats a scalar as one element
    return [axis_of(axis, x.rank)] if x.rank else [axis_of(axis, 1)][:0]


def _sum(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    x = inputs[0] if inputs[0].dtype.kind == "f" else builder.cast(inputs[0], INT64)
    return builder.sum(x, _axes(x, parameters), keep=False)


def _mean(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    x = _floating(builder, inputs[0])
    return builder.mean(x, _axes(x, parameters), keep=False)


def _extreme(operator: Operator) -> GuestRule:
    def rule(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
        (x,) = inputs
        axes = _axes(x, parameters)
        if any(not x.shape[axis] for axis in axes):
            raise ShapeError("there are no elements to compare")
        return builder.reduce(operator, x, axes, keep=False)

    return rule


def _argmax(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    (x,) = inputs
    axis = _number(parameters, "axis")
    if axis is None or not x.rank:
        x, axis = builder.reshape(x, (x.size,)), axis or 0
    axis = axis_of(axis, x.rank)
    result = builder.emit(Operator.ARG_MAX, x, axis=axis)
    return builder.reshape(result, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _reshape(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    (x,) = inputs
    return builder.reshape(x, moves.found_size(x, _numbers(parameters, "shape") or ()))


def _transpose(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    (x,) = inputs
    order = _numbers(parameters, "axes")
    axes = [*reversed(range(x.rank))] if order is None else [axis_of(n, x.rank) for n in order]
    return moves.transpose(builder, x, axes)


def _take(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    x, indices = inputs
    axis = _number(parameters, "axis")
    if axis is None:
        x, axis = builder.reshape(x, (x.size,)), 0
    axis = axis_of(axis, x.rank)
    return take(builder, x, wrapped(builder, indices, x.shape[axis]), axis)


def _concat(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    if not inputs:
        raise ShapeError("no tensor is given")
    rank = inputs[0].rank
    if any(tensor.rank != rank for tensor in inputs):
        raise ShapeError("the tensors have different numbers of axes")
    dtype = np.result_type(*(tensor.dtype for tensor in inputs))
    axis = axis_of(_number(parameters, "axis") or 0, rank)
    return moves.concat(builder, [builder.cast(tensor, dtype) for tensor in inputs], axis)


def _astype(builder: Builder, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> Tensor:
    name = parameters.get("dtype")
    if name not in ITEM_BYTES:
        raise DTypeError(f"there is no dtype {name!r}")
    return builder.cast(inputs[0], np.dtype(name))


GUEST_RULES: Final[Mapping[str, GuestRule]] = {
    "add": _binary(Operator.ADD), "sub": _binary(Operator.SUB), "mul": _binary(Operator.MUL),
    "div": _binary(Operator.DIV, floats=True), "pow": _binary(Operator.POW), "matmul": _matmul,
    "maximum": _binary(Operator.MAXIMUM), "minimum": _binary(Operator.MINIMUM),
    "neg": _unary(Operator.NEG, floats=False), "abs": _unary(Operator.ABS, floats=False),
    "exp": _unary(Operator.EXP), "log": _unary(Operator.LOG), "sqrt": _unary(Operator.SQRT),
    "tanh": _unary(Operator.TANH),
    "sigmoid": lambda builder, inputs, _: sigmoid(builder, _floating(builder, inputs[0])),
    "relu": lambda builder, inputs, _: builder.maximum(inputs[0], 0), "softmax": _softmax,
    "round": _round, "sum": _sum, "mean": _mean, "max": _extreme(Operator.REDUCE_MAX),
    "min": _extreme(Operator.REDUCE_MIN), "argmax": _argmax, "reshape": _reshape,
    "transpose": _transpose, "take": _take, "concat": _concat, "astype": _astype,
}  # fmt: skip
