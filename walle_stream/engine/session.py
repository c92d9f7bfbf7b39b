"""Sessions: models that are read, lowered and planned once, for one set of shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from walle_stream.engine.backends import backend_named
from walle_stream.engine.graph import Graph, Model, TensorType
from walle_stream.engine.inputs import checked_inputs
from walle_stream.engine.limits import Budget, Limits, guarded
from walle_stream.engine.lowering.trace import constant_tensors, trace
from walle_stream.engine.module import Piece
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import check_size
from walle_stream.engine.threads import checked_threads, run_with
from walle_stream.engine.values import Data, arrays_of, mapped, plain
from walle_stream.errors import EngineError, LoweringError, ShapeError

if TYPE_CHECKING:
    from types import ModuleType

    from walle_stream.engine.lowering.registry import Value


def read_model(path: str | Path) -> "Model":
    """Read an ONNX file; see ``onnx.importer.load_model``. Blocks."""
    model: Model = _importer().load_model(path)
    return model


def read_model_bytes(data: bytes, folder: Path | None = None) -> "Model":
    """Read an ONNX file's bytes; see ``onnx.importer.parse_model``."""
    model: Model = _importer().parse_model(data, folder=folder)
    return model


def _importer() -> "ModuleType":
    try:
        from walle_stream.engine.onnx import importer  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("walle_stream"):
            raise
        raise EngineError(
            f"models need the package {error.name!r}: install walle-stream[onnx]"
        ) from error
    return importer


@dataclass(frozen=True, slots=True)
class _Ready:
    piece: Piece
    inputs: dict[str, TensorType]
    outputs: dict[str, TensorType | None]


class Session:
    """A model for one set of shapes. Thread-safe; all methods block.

    All faults of the model are reported when the session is made; a run only checks its inputs and
    runs the plan. Several threads may call ``run`` at a time. A run that is in progress when
    another thread calls ``resize`` ends with its original shapes.
    """

    def __init__(
        self, model: Model | str | Path, shapes: Mapping[str, Sequence[int]] | None = None, *,
        backend: str = "numpy", threads: int | None = None, limits: Limits | None = None,
    ) -> None:  # fmt: skip
        """Lower and plan a model, which may be the path of an ONNX file.

        ``shapes`` has the shapes of the inputs by name. An input whose declared shape has only
        numbers may be omitted. For the other arguments see ``Module``.
        """
        self._limits = limits or Limits()
        self.model = model if isinstance(model, Model) else read_model(model)
        self.backend = backend
        self.threads = checked_threads(threads)
        self._backend = backend_named(backend)
        with guarded(self.model.graph.name):
            self._ready = self._planned(shapes or {})

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """Dtype and shape of each input, in order."""
        return self._ready.inputs

    @property
    def outputs(self) -> Mapping[str, TensorType | None]:
        """Dtype and shape of each output, in order.

        The shape is None if it depends on values; the type is None for sequences and maps.
        """
        return self._ready.outputs

    def resize(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Lower and plan for other shapes; after an error the old shapes stay."""
        with guarded(self.model.graph.name):
            self._ready = self._planned(shapes)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run the model on arrays of the session's shapes.

        Returns arrays by name, which belong to the caller; see ``Module.run``.

        Raises:
            ShapeError: An input has another shape.
            EngineError: An input has another fault, or the run fails.
        """
        ready = self._ready
        graph = self.model.graph
        arrays = checked_inputs(graph, inputs)
        for name, kind in ready.inputs.items():
            result = arrays[name]
            if np.shape(result) != kind.shape:  # type: ignore[arg-type]  # a tensor, by its type
                raise ShapeError(
                    f"input {name!r} has shape {list(np.shape(result))}, but the session is for"  # type: ignore[arg-type]
                    f" {list(kind.shape or ())}: resize it, or use a Module"
                )
        extra = next((name for name in arrays if name not in ready.inputs), None)
        if extra is not None:
            raise EngineError(f"input {extra!r} is constant in a session: use a Module")
        env: dict[str, Data] = {**graph.constants, **arrays}
        with run_with(self.threads), guarded(graph.name):
            ready.piece.run(env, Budget(self._limits))
        own = owned({name: env[name] for name in graph.outputs}, arrays)
        return {name: plain(data) for name, data in own.items()}

    def _planned(self, shapes: Mapping[str, Sequence[int]]) -> _Ready:
        if not isinstance(shapes, Mapping):
            raise EngineError(
                f"shapes must be given by name, as {{'name': (1, 3)}}, not as {shapes!r:.100}"
            )
        graph = self.model.graph
        inputs = {
            name: TensorType(*_type_of(name, graph, shapes))
            for name in graph.inputs if name not in graph.constants
        }  # fmt: skip
        unknown = next((name for name in shapes if name not in inputs), None)
        if unknown is not None:
            listed = ", ".join(map(repr, inputs)) or "none"
            raise EngineError(f"the model has no input {unknown!r}: it has {listed}")
        known: dict[str, Value] = {
            name: Tensor(kind.shape, kind.dtype, None, name)  # type: ignore[arg-type]  # numbers
            for name, kind in inputs.items()
        }
        fixed = constant_tensors(graph.constants)
        budget = Budget(self._limits)
        traced = trace(
            graph.nodes, {**fixed, **known}, self.model.functions, self._backend.compute, budget
        )
        if traced.remaining:
            raise LoweringError(
                f"{traced.remaining[0].title}: a session cannot run it: {traced.reason}:"
                " use a Module, or make the values on which it depends constants of the model"
            )
        missing = next((name for name in graph.outputs if name not in traced.values), None)
        if missing is not None:
            raise EngineError(f"graph {graph.name!r}: no node makes {missing!r}")
        outputs = {
            name: TensorType(value.dtype, value.shape if value.has_shape else None)
            if isinstance(value := traced.values[name], Tensor) else None
            for name in graph.outputs
        }  # fmt: skip
        return _Ready(
            Piece(self._backend, known, traced, set(graph.outputs), self._limits), inputs, outputs
        )


def _type_of(name: str, graph: Graph, shapes: Mapping[str, Sequence[int]]) -> tuple[Any, Shape]:
    kind = graph.inputs[name]
    if not isinstance(kind, TensorType):
        what = "has no type" if kind is None else "is not a tensor"
        raise EngineError(f"input {name!r} {what}, so a session cannot take it: use a Module")
    said = kind.shape
    wanted: Any = shapes.get(name, said)
    if not _are_sizes(wanted):
        raise ShapeError(
            f"input {name!r} has shape {_shown(said)}: give the session one of whole numbers,"
            f" not {wanted!r:.100}"
        )
    shape = tuple(int(n) for n in wanted)
    fits = said is None or (
        len(said) == len(shape)
        and all(not isinstance(n, int) or n == size for n, size in zip(said, shape, strict=True))
    )
    if not fits:
        raise ShapeError(f"input {name!r} has shape {_shown(said)}, not {list(shape)}")
    return kind.dtype, check_size(shape)


def _are_sizes(wanted: Any) -> bool:
    if isinstance(wanted, np.ndarray):
        return wanted.ndim == 1 and wanted.dtype.kind in "iu" and bool(np.all(wanted >= 0))
    if not isinstance(wanted, Sequence) or isinstance(wanted, str):
        return False
    return all(
        isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 0
        for size in wanted
    )


def _shown(shape: Sequence[Any] | None) -> str:
    return "unknown" if shape is None else str(list(shape))


def owned(outputs: Mapping[str, Data], inputs: Mapping[str, Data]) -> dict[str, Data]:
    """Return outputs that belong to the caller: an input, a constant or a duplicate is copied."""
    taken = {id(array) for value in inputs.values() for array in arrays_of(value)}

    def apart(array: Array) -> Array:
        if id(array) in taken or not array.flags.writeable:
            return np.array(array)
        taken.add(id(array))
        return array

    return {name: mapped(data, apart) for name, data in outputs.items()}
