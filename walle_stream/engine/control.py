"""Control flow: If, Loop, Scan and SequenceMap, on values that are known.

Each operator runs the graphs of its node. Such a graph gets its own inputs, and the values of the
enclosing graph that it reads.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import numpy as np

from walle_stream.engine.graph import Graph, Node, TensorType
from walle_stream.engine.limits import Budget
from walle_stream.engine.lowering.registry import Call, Kind, Result, axis_of, lowers
from walle_stream.engine.program import Array
from walle_stream.engine.rules import FLOAT32, check_size
from walle_stream.engine.values import Data, Maps
from walle_stream.errors import EngineError, LoweringError, ShapeError

type RunGraph = Callable[[Graph, Mapping[str, Data]], list[Data]]
"""Takes a graph and its inputs by name, including values that it reads of the enclosing graph."""


@lowers("If", "Loop", "Scan", "SequenceMap", kind=Kind.CONTROL)
def _control(call: Call) -> Result:
    raise LoweringError(f"{call.node.operator} is run, not lowered")


def run_control(run: RunGraph, node: Node, env: Mapping[str, Data], budget: Budget) -> list[Data]:
    """Run a node of control flow; ``run`` runs its graphs, and ``env`` has all values it reads.

    Raises:
        EngineError: The node cannot be run; the message names the node.
    """
    try:
        if node.operator == "If":
            return _if(run, node, env)
        return {"Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}[node.operator](
            run, node, env, budget
        )
    except (LoweringError, ShapeError) as error:
        raise type(error)(f"{node.title}: {error.message}") from error


def _if(run: RunGraph, node: Node, env: Mapping[str, Data]) -> list[Data]:
    condition = _array(node, env, 0)
    if condition is None:
        raise LoweringError("input 0 is missing; a condition is expected")
    branch = _graph(node, "then_branch" if _truth(condition) else "else_branch")
    result = run(branch, _captured(branch, env))
    if len(result) < len(node.outputs):
        raise LoweringError(f"its branch has {len(result)} outputs, not {len(node.outputs)}")
    return result


def _loop(run: RunGraph, node: Node, env: Mapping[str, Data], budget: Budget) -> list[Data]:
    trips, condition = _array(node, env, 0), _array(node, env, 1)
    if trips is not None and (trips.size != 1 or trips.dtype.kind not in "iu"):
        raise ShapeError(f"the number of trips is {trips.dtype.name}{list(trips.shape)}")
    count = None if trips is None else int(trips.reshape(-1)[0])
    goes_on = condition is None or _truth(condition)
    state: list[Data] = [env[name] if name else None for name in node.inputs[2:]]
    body = _Body(run, node, env, len(state) + 2, len(state) + 1)
    scanned: list[list[Array]] = [[] for _ in range(len(body.outputs) - 1 - len(state))]
    number = 0
    while goes_on and (count is None or number < count):
        result = body(np.array(number, np.int64), np.array(goes_on), *state)
        goes_on = _truth(_tensor(result[0]))
        state = result[1 : 1 + len(state)]
        for rows, data in zip(scanned, result[1 + len(state) :], strict=True):
            rows.append(_kept(data, budget))
        number += 1
    if number or not scanned:
        return [*state, *map(_stacked, scanned)]
    first = [np.array(0, np.int64), np.ones((), np.bool_), *state]
    return [*state, *_no_rows(body, first, 1 + len(state))]


def _kept(data: Data, budget: Budget) -> Array:
    row = _tensor(data)
    budget.keep(row.nbytes)
    return row


def _stacked(rows: list[Array]) -> Array:
    if any(row.shape != rows[0].shape for row in rows):
        raise ShapeError("a collected output changes its shape between iterations")
    return np.stack(rows)


def _no_rows(body: "_Body", inputs: Sequence[Data], states: int) -> list[Array]:
    # outputs of a loop without iterations: the declared shape and dtype, or those of a trial
    tensors = [
        kind if isinstance(kind, TensorType) else TensorType(FLOAT32)
        for kind in body.outputs[states:]
    ]
    if not all(
        tensor.shape is not None and all(isinstance(size, int) for size in tensor.shape)
        for tensor in tensors
    ):
        with suppress(EngineError):
            rows = [_tensor(data) for data in body(*inputs)[states:]]
            return [np.zeros((0, *row.shape), row.dtype) for row in rows]
    shapes = ([n if isinstance(n, int) else 0 for n in tensor.shape or ()] for tensor in tensors)
    return [
        np.zeros(check_size((0, *shape)), tensor.dtype)
        for shape, tensor in zip(shapes, tensors, strict=True)
    ]


def _scan(run: RunGraph, node: Node, env: Mapping[str, Data], budget: Budget) -> list[Data]:
    if node.version >= 9:  # noqa: PLR2004  # the opset that dropped its batch axis
        return _scan_one(run, node, _arrays(node, env, 0), env, budget)
    # opset 8: the first input has the lengths, and all tensors have a batch axis
    inputs, count = _arrays(node, env, 1), _scan_inputs(node, len(node.inputs) - 1)
    batches = {array.shape[:1] for array in inputs}
    is_short = any(array.ndim < 2 for array in inputs[-count:])  # noqa: PLR2004  # batch, length
    if is_short or len(batches) != 1 or batches & {(), (0,)}:
        raise ShapeError(f"inputs of shapes {[array.shape for array in inputs]} have no batches")
    lengths, most = _array(node, env, 0), inputs[-1].shape[1]
    if lengths is not None and lengths.shape != inputs[0].shape[:1]:
        raise ShapeError(f"{lengths.shape} lengths for {inputs[0].shape[0]} batches")
    results: list[list[Array]] = []
    for number in range(inputs[0].shape[0]):
        batch = [array[number] for array in inputs]
        kept = most if lengths is None else int(lengths[number])
        if not 0 <= kept <= most:
            raise ShapeError(f"a length of {kept} is not in 0 .. {most} steps")
        batch[-count:] = [array[:kept] for array in batch[-count:]]
        result = [_tensor(data) for data in _scan_one(run, node, batch, env, budget)]
        states = len(inputs) - count
        # zeros pad a shorter batch
        missing = (np.zeros((most - kept, *rows.shape[1:]), rows.dtype) for rows in result[states:])
        pairs = zip(result[states:], missing, strict=True)
        results.append([*result[:states], *map(np.concatenate, pairs)])
    return [_stacked(list(rows)) for rows in zip(*results, strict=True)]


def _scan_inputs(node: Node, total: int) -> int:
    count = node.attributes.get("num_scan_inputs")
    if type(count) is not int or not 0 < count <= total:
        raise LoweringError(f"attribute 'num_scan_inputs' is {count!r}, not in 1 .. {total} inputs")
    return count


def _scan_one(
    run: RunGraph, node: Node, inputs: list[Array], env: Mapping[str, Data], budget: Budget
) -> list[Data]:
    states = len(inputs) - _scan_inputs(node, len(inputs))
    body = _Body(run, node, env, len(inputs), states)
    state: list[Data] = list(inputs[:states])
    moved = _scanned(node, inputs[states:])
    rows: list[list[Array]] = [[] for _ in range(len(body.outputs) - states)]
    for number in range(len(moved[0])):
        result = body(*state, *(np.array(array[number]) for array in moved))
        state = result[:states]
        for collected, data in zip(rows, result[states:], strict=True):
            collected.append(_kept(data, budget))
    axes = _per_input(node, "scan_output_axes", len(rows))
    backwards = _per_input(node, "scan_output_directions", len(rows))
    if len(moved[0]):
        whole = [
            _stacked(row[:: -1 if back else 1]) for row, back in zip(rows, backwards, strict=True)
        ]
    else:
        one = [np.zeros(array.shape[1:], array.dtype) for array in moved]
        whole = _no_rows(body, [*state, *one], states)
    placed = [
        np.moveaxis(array, 0, axis_of(axis, array.ndim))
        for array, axis in zip(whole, axes, strict=True)
    ]
    return [*state, *(np.array(array, order="C") for array in placed)]


def _scanned(node: Node, inputs: list[Array]) -> list[Array]:
    # the inputs with the scanned axis first, in the order of reading
    axes = _per_input(node, "scan_input_axes", len(inputs))
    backwards = _per_input(node, "scan_input_directions", len(inputs))
    moved = [
        np.moveaxis(array, axis_of(axis, array.ndim), 0)[:: -1 if back else 1]
        for array, axis, back in zip(inputs, axes, backwards, strict=True)
    ]
    if len({len(array) for array in moved}) > 1:
        raise ShapeError(f"it scans inputs of different lengths: {[len(array) for array in moved]}")
    return moved


def _per_input(node: Node, name: str, count: int) -> tuple[int, ...]:
    value = node.attributes.get(name)
    if value is None and name == "scan_input_directions":
        value = node.attributes.get("directions")
    if not value:
        return (0,) * count
    if not isinstance(value, tuple) or not all(type(number) is int for number in value):
        raise LoweringError(f"attribute {name!r} must be whole numbers, not {value!r}")
    if len(value) != count:
        raise LoweringError(f"attribute {name!r} has {len(value)} elements, not {count}")
    return value


def _sequence_map(run: RunGraph, node: Node, env: Mapping[str, Data], budget: Budget) -> list[Data]:
    inputs = [env[name] if name else None for name in node.inputs]
    first = inputs[0] if inputs else None
    if not isinstance(first, list):
        raise LoweringError("input 0 is not a sequence")
    counts = [len(sequence) for sequence in inputs if isinstance(sequence, list)]
    if min(counts) != max(counts):
        raise ShapeError(f"sequences of different lengths: {counts} tensors")
    body = _Body(run, node, env, len(inputs), 0)
    results: list[list[Data]] = [[] for _ in body.outputs]
    for number in range(len(first)):
        result = body(
            *(sequence[number] if isinstance(sequence, list) else sequence for sequence in inputs)
        )
        for collected, data in zip(results, result, strict=True):
            budget.keep(0 if data is None or isinstance(data, (list, Maps)) else data.nbytes)
            collected.append(data)
    return list(results)


def _graph(node: Node, name: str) -> Graph:
    value = node.attributes.get(name)
    if not isinstance(value, Graph):
        raise LoweringError(f"attribute {name!r} is not a graph")
    return value


class _Body:
    """The graph that a node runs repeatedly, with the values that it reads of enclosing graphs."""

    def __init__(
        self, run: RunGraph, node: Node, env: Mapping[str, Data], inputs: int, outputs: int
    ) -> None:
        graph = _graph(node, "body")
        if len(graph.inputs) != inputs:
            raise LoweringError(f"its body takes {len(graph.inputs)} inputs, not {inputs}")
        if len(graph.outputs) < outputs:
            raise LoweringError(f"its body has {len(graph.outputs)} outputs, not {outputs} or more")
        self._run, self._graph, self._captured = run, graph, _captured(graph, env)
        self.outputs = list(graph.outputs.values())

    def __call__(self, *inputs: Data) -> list[Data]:
        named = zip(self._graph.inputs, inputs, strict=True)
        return self._run(self._graph, {**self._captured, **dict(named)})


def _captured(graph: Graph, env: Mapping[str, Data]) -> dict[str, Data]:
    return {name: env[name] for name in graph.free_names}


def _array(node: Node, env: Mapping[str, Data], number: int) -> Array | None:
    name = node.inputs[number] if number < len(node.inputs) else ""
    return _tensor(env[name]) if name else None


def _arrays(node: Node, env: Mapping[str, Data], first: int) -> list[Array]:
    if "" in node.inputs[first:]:
        raise LoweringError(f"input {node.inputs.index('', first)} is missing")
    return [_tensor(env[name]) for name in node.inputs[first:]]


def _tensor(data: Data) -> Array:
    if data is None or isinstance(data, (list, Maps)):
        raise LoweringError("a tensor is expected, not a sequence, a map or an empty optional")
    return data


def _truth(condition: Array) -> bool:
    if condition.size != 1:
        raise ShapeError(f"the condition has shape {list(condition.shape)}, not one element")
    return bool(condition.reshape(-1)[0])
