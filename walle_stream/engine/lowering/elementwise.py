"""Operators that are one atomic each, shapes spread to each other."""

from collections.abc import Mapping
from functools import reduce
from typing import Final

import numpy as np

from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor

_UNARY: Final[Mapping[str, Operator]] = {
    "Abs": Operator.ABS, "Neg": Operator.NEG, "Sign": Operator.SIGN, "Not": Operator.NOT,
    "Ceil": Operator.CEIL, "Floor": Operator.FLOOR, "Round": Operator.ROUND,
    "Sqrt": Operator.SQRT, "Exp": Operator.EXP, "Log": Operator.LOG, "Sin": Operator.SIN,
    "Cos": Operator.COS, "Tan": Operator.TAN, "Asin": Operator.ASIN, "Acos": Operator.ACOS,
    "Atan": Operator.ATAN, "Sinh": Operator.SINH, "Cosh": Operator.COSH, "Tanh": Operator.TANH,
    "Asinh": Operator.ASINH, "Acosh": Operator.ACOSH, "Atanh": Operator.ATANH,
    "Erf": Operator.ERF, "IsNaN": Operator.IS_NAN, "BitwiseNot": Operator.NOT,
}  # fmt: skip

_BINARY: Final[Mapping[str, Operator]] = {
    "Add": Operator.ADD, "Sub": Operator.SUB, "Mul": Operator.MUL, "Div": Operator.DIV,
    "And": Operator.AND, "Or": Operator.OR, "Xor": Operator.XOR,
    "BitwiseAnd": Operator.AND, "BitwiseOr": Operator.OR, "BitwiseXor": Operator.XOR,
    "Equal": Operator.EQUAL, "Less": Operator.LESS, "LessOrEqual": Operator.LESS_EQUAL,
}  # fmt: skip

_MIRRORED: Final[Mapping[str, Operator]] = {
    "Greater": Operator.LESS, "GreaterOrEqual": Operator.LESS_EQUAL,
}  # fmt: skip

_VARIADIC: Final[Mapping[str, Operator]] = {
    "Max": Operator.MAXIMUM, "Min": Operator.MINIMUM, "Sum": Operator.ADD, "Mean": Operator.ADD,
}  # fmt: skip


@lowers(*_UNARY, kind=Kind.ATOMIC)
def _unary(call: Call) -> Result:
    return call.builder.unary(_UNARY[call.node.operator], call.tensor(0))


@lowers(*_BINARY, *_MIRRORED, kind=Kind.ATOMIC)
def _binary(call: Call) -> Result:
    left, right = _legacy_spread(call)
    name = call.node.operator
    if name in _MIRRORED:
        return call.builder.binary(_MIRRORED[name], right, left)
    return call.builder.binary(_BINARY[name], left, right)


def _legacy_spread(call: Call) -> tuple[Tensor, Tensor]:
    # before opset 7 an axis says where the second one stands: axes of size 1 go behind it
    left, right = call.tensor(0), call.tensor(1)
    if call.version < 7 and call.number("broadcast", 0) and right.rank < left.rank:  # noqa: PLR2004
        axis = call.axis(left.rank) if "axis" in call.node.attributes else left.rank - right.rank
        behind = left.rank - axis - right.rank
        right = call.builder.reshape(right, (*right.shape, *(1,) * behind))
    return left, right


@lowers(*_VARIADIC, kind=Kind.ATOMIC)
def _variadic(call: Call) -> Result:
    tensors = call.tensors()
    operator = _VARIADIC[call.node.operator]
    total = reduce(lambda x, y: call.builder.binary(operator, x, y), tensors)
    return call.builder.div(total, len(tensors)) if call.node.operator == "Mean" else total


@lowers("Where", kind=Kind.ATOMIC)
def _where(call: Call) -> Result:
    return call.builder.select(call.tensor(0), call.tensor(1), call.tensor(2))


@lowers("Pow", kind=Kind.ATOMIC)
def _pow(call: Call) -> Result:
    base, exponent = _legacy_spread(call)
    builder = call.builder
    if base.dtype == exponent.dtype:
        return builder.binary(Operator.POW, base, exponent)
    # the exponent may have another dtype: computed in the wider of both, given in the base's
    wide = np.result_type(base.dtype, exponent.dtype)
    result = builder.binary(Operator.POW, builder.cast(base, wide), builder.cast(exponent, wide))
    return builder.cast(result, base.dtype)
