"""What a caller gives a graph, checked before anything of it is run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from walle_stream.engine.graph import Graph, TensorType
from walle_stream.engine.program import Data
from walle_stream.errors import DTypeError, EngineError, ShapeError


def checked_inputs(graph: Graph, given: Mapping[str, Any]) -> dict[str, Data]:
    """Take over the inputs of a graph.

    Args:
        graph: Of a model.
        given: By name: arrays, what numpy makes arrays of, sequences, None.

    Returns:
        Arrays, of the dtypes and shapes that the graph says.

    Raises:
        EngineError: A name is missing, or of no input.
        DTypeError: An array has another dtype.
        ShapeError: An array has another shape.
    """
    needed = [name for name in graph.inputs if name not in graph.constants]
    listed = ", ".join(map(repr, needed)) or "none"
    wrong = next((name for name in given if name not in graph.inputs), None)
    if wrong is not None:
        raise EngineError(f"the model has no input {wrong!r}: it has {listed}")
    missing = [name for name in needed if name not in given]
    if missing:
        raise EngineError(f"input {missing[0]!r} is not given: the model has {listed}")
    found = {name: _taken(name, value) for name, value in given.items()}
    for name, value in found.items():
        kind = graph.inputs[name]
        if isinstance(kind, TensorType):
            _check(name, kind, value)
    return found


def _taken(name: str, value: Any) -> Data:
    if isinstance(value, (list, tuple)) and any(not np.isscalar(each) for each in value):
        return [_taken(name, each) for each in value]
    if value is None:
        return None
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise EngineError(f"input {name!r}: numpy makes no array of it: {error}") from error
    return array.astype(object) if array.dtype.kind in "SU" else array


def _check(name: str, kind: TensorType, value: Data) -> None:
    if not isinstance(value, np.ndarray):
        raise EngineError(f"input {name!r} is a tensor, not a {type(value).__name__}")
    if value.dtype != kind.dtype:
        raise DTypeError(f"input {name!r} is {kind.dtype.name}, not {value.dtype.name}: cast it")
    if kind.shape is None:
        return
    fits = len(kind.shape) == value.ndim and all(
        not isinstance(wanted, int) or wanted == size
        for wanted, size in zip(kind.shape, value.shape, strict=True)
    )
    if not fits:
        raise ShapeError(f"input {name!r} has shape {list(kind.shape)}, not {list(value.shape)}")
