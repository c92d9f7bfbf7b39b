"""The ONNX backend API: ``prepare``, ``run_model``, ``run_node``, ``supports_device``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep

from walle_stream.engine.backends import backend_named
from walle_stream.engine.graph import Model
from walle_stream.engine.module import Backend as EngineBackend
from walle_stream.engine.module import GraphRunner
from walle_stream.engine.onnx.importer import import_model, parse_model


class EngineRep(BackendRep):  # type: ignore[misc]  # onnx is not typed here
    """A model that is ready to run."""

    def __init__(self, model: Model, backend: EngineBackend) -> None:
        """Take over.

        Args:
            model: As imported.
            backend: That runs it.
        """
        self._model = model
        self._runner = GraphRunner(model.graph, model.functions, backend)

    def run(self, inputs: Any, **_kwargs: Any) -> tuple[Any, ...]:
        """Run it.

        Args:
            inputs: In the order of the graph's inputs, or one array.

        Returns:
            Its outputs, in order.
        """
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        graph = self._model.graph
        names = [name for name in graph.inputs if name not in graph.constants]
        if len(given) > len(names):
            names = list(graph.inputs)
        return tuple(self._runner.run({n: normal(x) for n, x in zip(names, given, strict=False)}))


def normal(value: Any) -> Any:
    """Take over a value of a caller.

    Args:
        value: An array, a number, a list of them, or None.

    Returns:
        Arrays; strings have the dtype ``object``.
    """
    if isinstance(value, list):
        return [normal(each) for each in value]
    if value is None:
        return None
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "SU" else array


class EngineBackendApi(Backend):  # type: ignore[misc]  # onnx is not typed here
    """What ``onnx.backend.test`` calls."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_kwargs: Any) -> EngineRep:
        """Make a model ready."""
        del device
        return EngineRep(import_model(model), backend_named("numpy"))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether a device can be asked for."""
        return device.split(":", maxsplit=1)[0] == "CPU"


def prepare(model: ModelProto, device: str = "CPU", **kwargs: Any) -> EngineRep:
    """Make a model ready; see ``Backend.prepare`` of onnx."""
    return EngineBackendApi.prepare(model, device, **kwargs)


def run_model(model: ModelProto, inputs: Sequence[Any], device: str = "CPU") -> Any:
    """Run a model once; see ``Backend.run_model`` of onnx."""
    return prepare(model, device).run(inputs)


def prepare_with(model: bytes, backend: EngineBackend) -> EngineRep:
    """Make a model ready for one of the engine's backends.

    Args:
        model: Of a ``ModelProto``.
        backend: Any.

    Returns:
        The model.
    """
    return EngineRep(parse_model(model), backend)
