"""Control flow: If, Loop, Scan and SequenceMap, on values that are known.

Each runs the graphs of its node; what such a graph reads of the graph around it
is given to it beside its own inputs.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.lowering.registry import Call, Kind, Result, axis_of, lowers
from walle_stream.engine.program import Array, Data
from walle_stream.errors import EngineError, LoweringError, ShapeError

type RunGraph = Callable[[Graph, Mapping[str, Data]], list[Data]]
"""Takes a graph and its inputs by name, those that it reads around it included."""


@lowers("If", "Loop", "Scan", "SequenceMap", kind=Kind.CONTROL)
def _control(call: Call) -> Result:
    raise LoweringError(f"{call.node.operator} is run, not lowered")


def run_control(run: RunGraph, node: Node, env: Mapping[str, Data]) -> list[Data]:
    """Run a node of control flow.

    Args:
        run: Runs a graph of the node.
        node: One of those above.
        env: Values of everything that it reads.

    Returns:
        Its outputs, in order.

    Raises:
        EngineError: It cannot be run; the message names the node.
    """
    try:
        return {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}[
            node.operator
        ](run, node, env)
    except (LoweringError, ShapeError) as error:
        raise type(error)(f"{node.title}: {error.message}") from error


def _if(run: RunGraph, node: Node, env: Mapping[str, Data]) -> list[Data]:
    condition = _array(node, env, 0)
    if condition is None or condition.size != 1:
        raise ShapeError("the condition is not one element")
    branch = _graph(node, "then_branch" if condition.reshape(-1)[0] else "else_branch")
    return run(branch, _captured(branch, env))


def _loop(run: RunGraph, node: Node, env: Mapping[str, Data]) -> list[Data]:
    body = _graph(node, "body")
    trips, condition = _array(node, env, 0), _array(node, env, 1)
    count = None if trips is None else int(trips.reshape(-1)[0])
    goes_on = condition is None or bool(condition.reshape(-1)[0])
    state: list[Data] = [env[name] if name else None for name in node.inputs[2:]]
    names = list(body.inputs)
    if len(names) != len(state) + 2:
        raise LoweringError(f"its body takes {len(names)} inputs, not {len(state) + 2}")
    scanned: list[list[Array]] = [[] for _ in range(len(body.outputs) - 1 - len(state))]
    captured = _captured(body, env)
    number = 0
    while goes_on and (count is None or number < count):
        given = [np.array(number, np.int64), np.array(goes_on), *state]
        made = run(body, {**captured, **dict(zip(names, given, strict=True))})
        goes_on = bool(np.asarray(made[0]).reshape(-1)[0])
        state = made[1 : 1 + len(state)]
        for rows, each in zip(scanned, made[1 + len(state) :], strict=True):
            rows.append(_tensor(each))
        number += 1
    outputs = list(body.outputs.values())[1 + len(state) :]
    return [*state, *(_stacked(*each) for each in zip(scanned, outputs, strict=True))]


def _stacked(rows: list[Array], kind: Any) -> Array:
    if rows:
        if any(each.shape != rows[0].shape for each in rows):
            raise ShapeError("an output that is collected changes its shape between iterations")
        return np.stack(rows)
    shape = [each if isinstance(each, int) else 0 for each in (getattr(kind, "shape", None) or ())]
    return np.zeros((0, *shape), getattr(kind, "dtype", np.float32))


def _scan(run: RunGraph, node: Node, env: Mapping[str, Data]) -> list[Data]:
    if node.version < 9:  # noqa: PLR2004  # the opset that dropped its batch axis
        return _scan_batches(run, node, env)
    return _scan_one(run, node, [_tensor(env[name]) for name in node.inputs], env)


def _scan_batches(run: RunGraph, node: Node, env: Mapping[str, Data]) -> list[Data]:
    # opset 8: an input of lengths first, and an axis of batches in everything
    inputs = [_tensor(env[name]) for name in node.inputs[1:]]
    lengths = _array(node, env, 0)
    count = int(node.attributes["num_scan_inputs"])
    results = []
    for number in range(inputs[0].shape[0]):
        given = [each[number] for each in inputs]
        if lengths is not None:
            kept = int(lengths[number])
            given = given[:-count] + [each[:kept] for each in given[-count:]]
        results.append([_tensor(each) for each in _scan_one(run, node, given, env)])
    return [np.stack(each) for each in zip(*results, strict=True)]


def _scan_one(
    run: RunGraph, node: Node, inputs: list[Array], env: Mapping[str, Data]
) -> list[Data]:
    body = _graph(node, "body")
    count = int(node.attributes["num_scan_inputs"])
    states = len(inputs) - count
    if not 0 < count <= len(inputs):
        raise LoweringError(f"num_scan_inputs is {count} of {len(inputs)}")
    state: list[Data] = list(inputs[:states])
    scanned = inputs[states:]
    outputs = len(body.outputs) - states
    axes = _each(node, "scan_input_axes", count)
    backwards = _each(node, "scan_input_directions", count)
    moved = [
        np.moveaxis(each, axis_of(axis, each.ndim), 0)[:: -1 if back else 1]
        for each, axis, back in zip(scanned, axes, backwards, strict=True)
    ]
    if len({len(each) for each in moved}) > 1:
        raise ShapeError(f"it scans inputs of lengths {[len(each) for each in moved]}")
    rows: list[list[Array]] = [[] for _ in range(outputs)]
    captured = _captured(body, env)
    for number in range(len(moved[0])):
        given = [*state, *(np.array(each[number]) for each in moved)]
        made = run(body, {**captured, **dict(zip(body.inputs, given, strict=True))})
        state = made[:states]
        for collected, each in zip(rows, made[states:], strict=True):
            collected.append(_tensor(each))
    results: list[Data] = list(state)
    kinds = list(body.outputs.values())[states:]
    out_axes = _each(node, "scan_output_axes", outputs)
    out_backwards = _each(node, "scan_output_directions", outputs)
    for collected, kind, axis, back in zip(rows, kinds, out_axes, out_backwards, strict=True):
        stacked = _stacked(collected[::-1] if back else collected, kind)
        results.append(np.array(np.moveaxis(stacked, 0, axis_of(axis, stacked.ndim)), order="C"))
    return results


def _each(node: Node, name: str, count: int) -> tuple[int, ...]:
    found = tuple(node.attributes.get(name) or ())
    if not found and name == "scan_input_directions" and "directions" in node.attributes:
        found = tuple(node.attributes["directions"])
    if found and len(found) != count:
        raise LoweringError(f"attribute {name!r} has {len(found)} elements, not {count}")
    return found or (0,) * count


def _sequence_map(run: RunGraph, node: Node, env: Mapping[str, Data]) -> list[Data]:
    body = _graph(node, "body")
    inputs = [env[name] for name in node.inputs]
    first = inputs[0]
    if not isinstance(first, list):
        raise LoweringError("input 0 is no sequence")
    captured = _captured(body, env)
    results: list[list[Data]] = [[] for _ in body.outputs]
    for number in range(len(first)):
        given = [each[number] if isinstance(each, list) else each for each in inputs]
        made = run(body, {**captured, **dict(zip(body.inputs, given, strict=True))})
        for collected, each in zip(results, made, strict=True):
            collected.append(each)
    return list(results)


def _graph(node: Node, name: str) -> Graph:
    found = node.attributes.get(name)
    if not isinstance(found, Graph):
        raise LoweringError(f"attribute {name!r} is no graph")
    return found


def _captured(graph: Graph, env: Mapping[str, Data]) -> dict[str, Data]:
    return {name: env[name] for name in graph.free_names}


def _array(node: Node, env: Mapping[str, Data], number: int) -> Array | None:
    name = node.inputs[number] if number < len(node.inputs) else ""
    return _tensor(env[name]) if name else None


def _tensor(data: Data) -> Array:
    if data is None or isinstance(data, list):
        raise EngineError("a tensor is expected, not a sequence or an empty optional")
    return data
