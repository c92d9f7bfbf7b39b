"""Shape and dtype rules of the atomic operators, as an executable specification.

``infer`` returns shape and dtype of a step's output. Tests check programs against it after each
pass (``walle_stream.testing.stages``).
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.operators import (
    ARG_REDUCTION,
    ARITHMETIC,
    COMPARISON,
    REDUCTION,
    UNARY,
    Operator,
)
from walle_stream.engine.program import Array, DType, Tensor
from walle_stream.engine.region import Shape, validate_regions
from walle_stream.errors import DTypeError, ShapeError, SpecError

type _Inferred = tuple[Shape | None, DType]

MAX_ELEMENTS: Final = 1 << 31
"""Largest number of elements of a tensor; a larger size is treated as a mistake."""

MAX_RANK: Final = 64
"""Largest number of axes of a tensor, as in numpy."""

BOOL: Final = np.dtype(np.bool_)
INT64: Final = np.dtype(np.int64)
FLOAT32: Final = np.dtype(np.float32)
FLOAT64: Final = np.dtype(np.float64)
TEXT: Final = np.dtype(object)
_BYTES: Final = np.dtype(np.uint8)
_IMAGE: Final = "decode_image"
"""The only host operation that does not take strings."""

_BOOL_OR_INT: Final = frozenset({Operator.NOT, Operator.AND, Operator.OR, Operator.XOR})
_NO_BOOL: Final = frozenset(
    {Operator.NEG, Operator.SIGN, Operator.SUB, Operator.MOD, Operator.FMOD}
)
_INTEGER: Final = frozenset({Operator.SHIFT_LEFT, Operator.SHIFT_RIGHT})
_WHOLE_BYTES: Final = frozenset({Operator.DIV, Operator.POW, Operator.MOD, Operator.FMOD})
"""Refused for integers of 2 and 4 bits: ``ml_dtypes`` cannot divide by zero, or warns."""
_NO_COMPLEX: Final = ARG_REDUCTION | {
    Operator.CEIL, Operator.FLOOR, Operator.MOD, Operator.FMOD, Operator.LESS, Operator.LESS_EQUAL,
    Operator.MINIMUM, Operator.MAXIMUM, Operator.REDUCE_MAX, Operator.REDUCE_MIN,
}  # fmt: skip
_FLOATING: Final = frozenset({
    Operator.SQRT, Operator.EXP, Operator.LOG, Operator.SIN, Operator.COS, Operator.TAN,
    Operator.ASIN, Operator.ACOS, Operator.ATAN, Operator.SINH, Operator.COSH, Operator.TANH,
    Operator.ASINH, Operator.ACOSH, Operator.ATANH, Operator.ERF, Operator.IS_NAN,
})  # fmt: skip


def is_integer(dtype: DType) -> bool:
    """Whether a dtype is an integer, including 2- and 4-bit ones but not bool."""
    return dtype.kind in "iu" or dtype.name.startswith(("int", "uint"))


def is_floating(dtype: DType) -> bool:
    """Whether a dtype is a floating-point one, of numpy or ``ml_dtypes``, of any width."""
    return dtype.kind == "f" or dtype.name.startswith(("float", "bfloat"))


def check_size(shape: Shape, what: str = "a tensor") -> Shape:
    """Refuse a shape that cannot be allocated, before an attempt.

    Raises:
        ShapeError: A size is negative, or the shape exceeds ``MAX_ELEMENTS`` or ``MAX_RANK``.
    """
    if len(shape) > MAX_RANK:
        raise ShapeError(f"{what} has {len(shape)} axes, more than {MAX_RANK}")
    if min(shape, default=0) < 0:
        raise ShapeError(f"{what} of shape {list(shape)} has a negative size")
    if prod(size for size in shape if size) > MAX_ELEMENTS:
        raise ShapeError(f"{what} of shape {list(shape)} has more than {MAX_ELEMENTS} elements")
    return shape


def infer(operator: Operator, inputs: Sequence[Tensor], parameters: Mapping[str, Any]) -> _Inferred:
    """Return shape (None if it depends on values) and dtype of a step's output.

    Raises:
        ShapeError: The shapes do not fit the operator.
        DTypeError: The dtypes do not fit the operator.
        SpecError: The number of inputs is wrong, or a parameter is unknown.
    """
    count, rule = _RULES[operator]
    if count is not None and len(inputs) != count:
        raise SpecError(f"{operator} takes {count} inputs, not {len(inputs)}")
    try:
        shape, dtype = rule(operator, inputs, **parameters)
    except DTypeError:
        raise
    except TypeError as error:
        raise SpecError(f"{operator} with {dict(parameters)}: {error}") from error
    return (None if shape is None else check_size(shape, str(operator))), dtype


def _check_numbers(operator: Operator, dtype: DType) -> None:
    # EQUAL, SELECT and TEXT alone take text; complex numbers have no order
    if dtype.kind == "O":
        raise DTypeError(f"{operator} takes numbers, not text")
    if dtype.kind == "c" and operator in _NO_COMPLEX:
        raise DTypeError(f"{operator} takes real numbers, not {dtype.name}")
    if dtype == BOOL and operator in _NO_BOOL:
        raise DTypeError(f"{operator} takes numbers, not bool")
    if operator in _INTEGER and not is_integer(dtype):
        raise DTypeError(f"{operator} takes integers, not {dtype.name}")
    if operator in _BOOL_OR_INT and not (dtype == BOOL or is_integer(dtype)):
        raise DTypeError(f"{operator} takes bool or integers, not {dtype.name}")
    if operator in _WHOLE_BYTES and is_foreign(dtype) and is_integer(dtype):
        raise DTypeError(f"{operator} takes no integers of 2 or 4 bits, as {dtype.name}: cast them")


def _unary(operator: Operator, inputs: Sequence[Tensor]) -> _Inferred:
    dtype = inputs[0].dtype
    _check_numbers(operator, dtype)
    if operator in _FLOATING and not is_floating(dtype):
        raise DTypeError(f"{operator} takes floating-point numbers, not {dtype.name}")
    return inputs[0].shape, BOOL if operator is Operator.IS_NAN else dtype


def _cast(
    _operator: Operator, inputs: Sequence[Tensor], dtype: DType, saturate: bool = True,
    mode: str = "up",
) -> _Inferred:  # fmt: skip
    del saturate, mode
    if inputs[0].dtype.kind == "c" != dtype.kind:
        raise DTypeError(f"{inputs[0].dtype.name} cannot become {dtype.name}")
    return inputs[0].shape, dtype


def _bitcast(_operator: Operator, inputs: Sequence[Tensor], dtype: DType) -> _Inferred:
    if "O" in {inputs[0].dtype.kind, dtype.kind}:
        raise DTypeError(f"bitcast of {inputs[0].dtype.name} to {dtype.name}: text has no bits")
    if inputs[0].dtype.itemsize != dtype.itemsize:
        raise DTypeError(f"bitcast of {inputs[0].dtype.name} to {dtype.name}: their widths differ")
    return inputs[0].shape, dtype


def _same(operator: Operator, inputs: Sequence[Tensor]) -> tuple[Shape, DType]:
    first, second = inputs[0], inputs[1]
    if first.shape != second.shape:
        raise ShapeError(f"{operator} of shapes {list(first.shape)} and {list(second.shape)}")
    if first.dtype != second.dtype:
        raise DTypeError(f"{operator} of {first.dtype.name} and {second.dtype.name}")
    return first.shape, first.dtype


def _binary(operator: Operator, inputs: Sequence[Tensor]) -> _Inferred:
    shape, dtype = _same(operator, inputs)
    if operator is not Operator.EQUAL:
        _check_numbers(operator, dtype)
    return shape, BOOL if operator in COMPARISON else dtype


def _select(operator: Operator, inputs: Sequence[Tensor]) -> _Inferred:
    shape, dtype = _same(operator, inputs[1:])
    if inputs[0].shape != shape or inputs[0].dtype != BOOL:
        raise ShapeError(f"select by {inputs[0]} of shape {list(shape)}")
    return shape, dtype


def _reduction(operator: Operator, inputs: Sequence[Tensor], axes: Shape) -> _Inferred:
    _check_numbers(operator, inputs[0].dtype)
    shape = [*inputs[0].shape]
    for axis in axes:
        if not 0 <= axis < len(shape):
            raise ShapeError(f"{operator} over axis {axis} of shape {shape}")
        shape[axis] = 1
    return tuple(shape), inputs[0].dtype


def _arg(operator: Operator, inputs: Sequence[Tensor], axis: int, last: bool = False) -> _Inferred:
    del last
    shape, _ = _reduction(operator, inputs, (axis,))
    if not inputs[0].shape[axis]:
        raise ShapeError(f"{operator} along an axis of size 0")
    return shape, INT64


def _matmul(operator: Operator, inputs: Sequence[Tensor]) -> _Inferred:
    left, right = inputs
    _check_numbers(operator, left.dtype)
    if left.dtype != right.dtype:
        raise DTypeError(f"matmul of {left.dtype.name} and {right.dtype.name}")
    a, b = left.shape, right.shape
    if len(a) < 2 or len(a) != len(b) or a[:-2] != b[:-2] or a[-1] != b[-2]:  # noqa: PLR2004
        raise ShapeError(f"matmul of shapes {list(a)} and {list(b)}")
    return (*a[:-1], b[-1]), left.dtype


def _argsort(_operator: Operator, inputs: Sequence[Tensor], descending: bool = False) -> _Inferred:
    del descending
    if not inputs[0].rank:
        raise ShapeError("argsort of a scalar")
    return inputs[0].shape, INT64


def _take(_operator: Operator, inputs: Sequence[Tensor]) -> _Inferred:
    data, indices = inputs
    if data.rank != 3 or indices.rank != 1:  # noqa: PLR2004  # see Operator.TAKE
        raise ShapeError(f"take of shapes {list(data.shape)} and {list(indices.shape)}")
    if indices.dtype != INT64:
        raise DTypeError(f"take by {indices.dtype.name}")
    return (data.shape[0], indices.shape[0], data.shape[2]), data.dtype


_COMBINED: Final = {
    "add": Operator.ADD, "mul": Operator.MUL, "minimum": Operator.MINIMUM,
    "maximum": Operator.MAXIMUM,
}  # fmt: skip


def _put(_operator: Operator, inputs: Sequence[Tensor], reduction: str = "none") -> _Inferred:
    data, indices, updates = inputs
    if data.rank != 2 or indices.rank != 1:  # noqa: PLR2004  # see Operator.PUT
        raise ShapeError(f"put into {data} by {indices}")
    if (indices.shape[0], data.shape[1]) != updates.shape:
        raise ShapeError(f"put into {data} by {indices} of {updates}")
    if indices.dtype != INT64 or updates.dtype != data.dtype:
        raise DTypeError(f"put into {data} by {indices} of {updates}")
    combined = _COMBINED.get(reduction)
    if combined is not None:
        _check_numbers(combined, data.dtype)
    elif reduction != "none":
        raise SpecError(f"put does not combine by {reduction!r}")
    return data.shape, data.dtype


def _random(
    _operator: Operator, _inputs: Sequence[Tensor], shape: Shape, dtype: DType,
    seed: int | None = None,
) -> _Inferred:  # fmt: skip
    del seed
    if not is_floating(dtype):
        raise DTypeError(f"random numbers are floating-point numbers, not {dtype.name}")
    return shape, dtype


def _text(
    _operator: Operator, inputs: Sequence[Tensor], name: str, shape: Shape | None, dtype: DType,
    **parameters: Any,
) -> _Inferred:  # fmt: skip
    del parameters
    for tensor in inputs:
        if tensor.dtype != (_BYTES if name == _IMAGE else TEXT):
            raise DTypeError(f"{name} of text takes no {tensor.dtype.name}")
    return shape, dtype


def _raster(
    _operator: Operator, inputs: Sequence[Tensor], regions: Any, shape: Shape, dtype: DType,
    fill: Any = None, accumulate: bool = False,
) -> _Inferred:  # fmt: skip
    validate_regions(regions, [tensor.shape for tensor in inputs], shape)
    for tensor in inputs:
        if tensor.dtype != dtype:
            raise DTypeError(f"a raster of {dtype.name} reads {tensor}")
    if fill is None and sum(region.count for region in regions) < prod(shape):
        raise SpecError(f"a raster of shape {list(shape)} leaves elements that no region writes")
    if accumulate and dtype == TEXT:
        raise DTypeError("strings cannot be accumulated")
    return shape, dtype


_RULES: Final[Mapping[Operator, tuple[int | None, Callable[..., _Inferred]]]] = {
    **dict.fromkeys(UNARY, (1, _unary)),
    Operator.CAST: (1, _cast),
    Operator.BITCAST: (1, _bitcast),
    **dict.fromkeys(ARITHMETIC | COMPARISON, (2, _binary)),
    Operator.SELECT: (3, _select),
    **dict.fromkeys(REDUCTION, (1, _reduction)),
    **dict.fromkeys(ARG_REDUCTION, (1, _arg)),
    Operator.MATMUL: (2, _matmul),
    Operator.ARGSORT: (1, _argsort),
    Operator.TAKE: (2, _take),
    Operator.PUT: (3, _put),
    Operator.NONZERO: (1, lambda _operator, _inputs: (None, INT64)),
    Operator.RANDOM: (0, _random),
    Operator.TEXT: (None, _text),
    Operator.RASTER: (None, _raster),
}
"""Number of inputs, None for any, and the function that infers the output."""


TABLE_MAX: Final = 1 << 28
"""Largest number of elements of a constant that a rule makes during lowering."""


def check_table(shape: Shape, what: str) -> Shape:
    """Refuse a constant that is too large, before it is made.

    Raises:
        ShapeError: A size is negative, or the shape exceeds ``TABLE_MAX`` elements.
    """
    if prod(check_size(shape, what)) > TABLE_MAX:
        raise ShapeError(f"{what} of shape {list(shape)} has more than {TABLE_MAX} elements")
    return shape


_FOREIGN: Final = 2
"""The value of ``isbuiltin`` for a dtype that another package has added to numpy."""


def is_foreign(dtype: DType) -> bool:
    """Whether a dtype comes from ``ml_dtypes`` (bfloat16, float8, int4 ...), not from numpy.

    A numpy dtype with an explicit byte order is numpy's own, although it is not a builtin.
    """
    return dtype.isbuiltin == _FOREIGN


def native(array: Array) -> Array:
    """Return an array with numpy's own dtype object in native byte order.

    The result is a view, or a copy if the byte order changes.
    """
    dtype = array.dtype
    if dtype.isbuiltin or dtype.hasobject or dtype.fields:
        return array
    own = np.dtype(dtype.name) if dtype.kind in "biufc" else dtype.newbyteorder("=")
    return array.view(own) if dtype.isnative else array.astype(own)
