"""A simple evaluator of tensor expressions with one numpy call per node, without models.

It is the oracle of the engine's evaluator and defines the meaning of the guests' operators.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.errors import TensorError
from walle_stream.wire.graph import ITEM_BYTES, MAX_ELEMENTS, Constant, Graph, Node

WORK_MAX_ELEMENTS: Final = 1 << 28
"""Largest number of elements that all nodes of a request may compute together."""

_MACS_PER_ELEMENT: Final = 32  # multiply-adds of a matrix product in the time of one element


class SimpleEvaluator:
    """Evaluator of requests, node by node. Thread-safe; calls block."""

    def evaluate(self, graph: Graph) -> list[Constant]:
        """Compute the outputs of a request.

        Returns:
            One value per output, in order.

        Raises:
            TensorError: An operator is unknown, shapes do not fit, or the request is too large.
        """
        return self.evaluate_all([graph])[0]

    def evaluate_all(self, graphs: Sequence[Graph]) -> list[list[Constant]]:
        """Compute requests one after the other.

        Returns:
            One list of values per request, in order.

        Raises:
            TensorError: See ``evaluate``.
        """
        found: list[list[Constant]] = []
        for graph in graphs:
            found.append(self._evaluate(graph, found))
        return found

    def _evaluate(self, graph: Graph, before: list[list[Constant]]) -> list[Constant]:
        values: list[Any] = []
        work = 0
        for number, node in enumerate(graph.nodes):
            constant = graph.constants.get(number)
            if graph.earlier and number in graph.earlier:
                request, output = graph.earlier[number]
                constant = before[request][output]
            if constant is not None:
                data = np.frombuffer(constant.data, np.dtype(constant.dtype).newbyteorder("<"))
                values.append(data.reshape(constant.shape))
                continue
            inputs = [values[each] for each in node.inputs]
            work += _check_size(number, node, inputs)
            if work > WORK_MAX_ELEMENTS:
                raise TensorError(
                    f"a tensor request computes more than {WORK_MAX_ELEMENTS} elements"
                )
            values.append(_apply(number, node, inputs))
        return [_constant(values[each]) for each in graph.outputs]


def _apply(number: int, node: Node, inputs: list[Any]) -> Any:
    function = _OPERATORS.get(node.operator)
    if function is None:
        raise TensorError(f"node {number}: there is no operator {node.operator!r}")
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(function(inputs, node.parameters))
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError) as error:
        shapes = ", ".join(str(each.shape) for each in inputs)
        raise TensorError(f"node {number}: {node.operator} of shapes {shapes}: {error}") from error
    if found.dtype.name not in ITEM_BYTES:
        raise TensorError(f"node {number}: {node.operator} gives {found.dtype.name}")
    return found


def _check_size(number: int, node: Node, inputs: list[Any]) -> int:
    # check before computing: two small vectors can broadcast to a huge matrix
    shapes = [each.shape for each in inputs]
    work = max((each.size for each in inputs), default=0)
    try:
        if node.operator == "matmul":
            left, right = ((1, *shape) if len(shape) == 1 else shape for shape in shapes)
            stack = prod(np.broadcast_shapes(left[:-2], right[:-2]))
            count = stack * left[-2] * right[-1]
            work = max(work, count * left[-1] // _MACS_PER_ELEMENT)
        elif node.operator == "take":
            size = shapes[0][_number(node.parameters, "axis") or 0]
            count = inputs[0].size // max(size, 1) * inputs[1].size
        elif node.operator == "concat":
            count = sum(each.size for each in inputs)
        else:
            count = prod(np.broadcast_shapes(*shapes))
    except (ValueError, IndexError, TypeError) as error:
        raise TensorError(f"node {number}: {node.operator}: {error}") from error
    if count > MAX_ELEMENTS:
        raise TensorError(f"node {number}: {node.operator} gives {count} elements: too many")
    return int(max(work, count, 1))


def _constant(value: Any) -> Constant:
    data = np.ascontiguousarray(value, np.dtype(value.dtype.name).newbyteorder("<"))
    return Constant(value.dtype.name, value.shape, data.tobytes())


def _number(parameters: Any, name: str) -> int | None:
    value = parameters.get(name)
    if value is not None and type(value) is not int:
        raise TypeError(f"{name} is a whole number")
    return value


def _numbers(parameters: Any, name: str) -> list[int] | None:
    value = parameters.get(name)
    if value is None:
        return None
    if type(value) is not list or any(type(each) is not int for each in value):
        raise TypeError(f"{name} is a list of whole numbers")
    return value


def _softmax(x: Any, axis: int) -> Any:
    shifted = np.exp(x - x.max(axis=axis, keepdims=True))
    return shifted / shifted.sum(axis=axis, keepdims=True)


def _astype(x: Any, dtype: Any) -> Any:
    if dtype not in ITEM_BYTES:
        raise ValueError(f"there is no dtype {dtype!r}")
    return x.astype(dtype)


def _weak(function: Callable[[Any, Any], Any]) -> Callable[[list[Any], Any], Any]:
    # a plain number does not widen a tensor, as in numpy (NEP 50)
    def apply(inputs: list[Any], _parameters: Any) -> Any:
        left, right = inputs
        if left.ndim and not right.ndim and left.dtype.kind == "f":
            right = right.astype(left.dtype)
        elif right.ndim and not left.ndim and right.dtype.kind == "f":
            left = left.astype(right.dtype)
        elif left.dtype != right.dtype and {left.dtype.kind, right.dtype.kind} & {"f"}:
            wide = "float64" if "float64" in {left.dtype.name, right.dtype.name} else "float32"
            left, right = left.astype(wide), right.astype(wide)
        return function(left, right)

    return apply


def _unary(function: Callable[[Any], Any]) -> Callable[[list[Any], Any], Any]:
    def apply(inputs: list[Any], _parameters: Any) -> Any:
        (x,) = inputs
        return function(x if x.dtype.kind == "f" else x.astype("float32"))

    return apply


def _along(function: Callable[..., Any]) -> Callable[[list[Any], Any], Any]:
    return lambda inputs, parameters: function(inputs[0], axis=_number(parameters, "axis"))


_OPERATORS: Final[dict[str, Callable[[list[Any], Any], Any]]] = {
    "add": _weak(np.add),
    "sub": _weak(np.subtract),
    "mul": _weak(np.multiply),
    "div": lambda inputs, _: _weak(np.divide)([_floating(each) for each in inputs], None),
    "pow": _weak(np.power),
    "matmul": _weak(np.matmul),
    "maximum": _weak(np.maximum),
    "minimum": _weak(np.minimum),
    "neg": lambda inputs, _: -inputs[0],
    "abs": lambda inputs, _: np.abs(inputs[0]),
    "exp": _unary(np.exp),
    "log": _unary(np.log),
    "sqrt": _unary(np.sqrt),
    "tanh": _unary(np.tanh),
    "sigmoid": _unary(lambda x: 1 / (1 + np.exp(-x))),
    "relu": lambda inputs, _: np.maximum(inputs[0], inputs[0].dtype.type(0)),
    "softmax": lambda inputs, given: _softmax(_floating(inputs[0]), _number(given, "axis") or 0),
    "round": lambda inputs, given: _round(inputs[0], _number(given, "digits") or 0),
    "sum": lambda inputs, given: np.sum(
        inputs[0], axis=_number(given, "axis"), dtype=_sum_type(inputs[0])
    ),
    "mean": lambda inputs, given: np.mean(_floating(inputs[0]), axis=_number(given, "axis")),
    "max": _along(np.max),
    "min": _along(np.min),
    "argmax": _along(np.argmax),
    "reshape": lambda inputs, given: inputs[0].reshape(_numbers(given, "shape") or ()),
    "transpose": lambda inputs, given: np.transpose(inputs[0], _numbers(given, "axes")),
    "take": lambda inputs, given: np.take(
        inputs[0], _indices(inputs[1]), axis=_number(given, "axis")
    ),
    "concat": lambda inputs, given: np.concatenate(inputs, axis=_number(given, "axis") or 0),
    "astype": lambda inputs, given: _astype(inputs[0], given.get("dtype")),
}


def _floating(x: Any) -> Any:
    return x if x.dtype.kind == "f" else x.astype("float32")


def _round(x: Any, digits: int) -> Any:
    if not 0 <= digits <= 15:  # noqa: PLR2004 - as many as a float64 has
        raise ValueError(f"digits are 0 to 15, not {digits}")
    return np.round(x, digits)


def _indices(x: Any) -> Any:
    if x.dtype.kind == "f":
        raise TypeError(f"indices are whole numbers, not {x.dtype.name}")
    return x


def _sum_type(x: Any) -> Any:
    return x.dtype if x.dtype.kind == "f" else np.int64
