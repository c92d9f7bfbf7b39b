"""Matrix products: a sum of products for each element."""

from collections.abc import Mapping, Sequence
from math import prod, sumprod
from typing import Any

from walle_stream.engine.rules import is_floating
from walle_stream.testing.toy.elements import Elements, Value, fitted


def matmul(inputs: Sequence[Value], _parameters: Mapping[str, Any]) -> Value:
    """Multiply matrices; see ``Operator.MATMUL``."""
    x, y = inputs
    rows, depth, columns = *x.shape[-2:], y.shape[-1]
    made: Elements = []
    for number in range(prod(x.shape[:-2])):
        left = x.elements[number * rows * depth :]
        right = y.elements[number * depth * columns : (number + 1) * depth * columns]
        lines = [right[each::columns] for each in range(columns)]
        for row in range(rows):
            line = left[row * depth : (row + 1) * depth]
            made.extend([sumprod(line, each) for each in lines])
    if is_floating(x.dtype):
        made = [float(each) for each in made]
    return Value((*x.shape[:-1], columns), x.dtype, fitted(made, x.dtype))
