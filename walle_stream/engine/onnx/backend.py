"""The ONNX backend API: ``prepare``, ``run_model``, ``run_node``, ``supports_device``."""

from collections.abc import Sequence
from typing import Any

from onnx import ModelProto
from onnx.backend.base import Backend, BackendRep

from walle_stream.engine.backends import backend_named
from walle_stream.engine.graph import Model
from walle_stream.engine.inputs import checked_inputs
from walle_stream.engine.limits import Limits
from walle_stream.engine.module import Backend as EngineBackend
from walle_stream.engine.module import GraphRunner
from walle_stream.engine.onnx.importer import import_model, parse_model
from walle_stream.errors import EngineError


class EngineRep(BackendRep):  # type: ignore[misc]  # onnx is not typed here
    """A model that is ready to run."""

    def __init__(self, model: Model, backend: EngineBackend, limits: Limits | None = None) -> None:
        """Take over.

        Args:
            model: As imported.
            backend: That runs it.
            limits: Of each run.
        """
        self._model = model
        self._runner = GraphRunner(model.graph, model.functions, backend, limits)

    def run(self, inputs: Any, **_kwargs: Any) -> tuple[Any, ...]:
        """Run it.

        Args:
            inputs: In the order of the graph's inputs, or one array.

        Returns:
            Its outputs, in order.

        Raises:
            EngineError: It cannot be run, or not with these inputs.
        """
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        graph = self._model.graph
        names = [name for name in graph.inputs if name not in graph.constants]
        if len(given) > len(names):
            names = list(graph.inputs)
        if len(given) > len(names):
            raise EngineError(f"{len(given)} inputs are given, of {len(names)} at most")
        named = dict(zip(names, given, strict=False))
        return tuple(self._runner.run(checked_inputs(graph, named)))


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


def prepare_with(model: bytes, backend: EngineBackend, limits: Limits | None = None) -> EngineRep:
    """Make a model ready for one of the engine's backends.

    Args:
        model: Of a ``ModelProto``.
        backend: Any.
        limits: Of each run.

    Returns:
        The model.
    """
    return EngineRep(parse_model(model), backend, limits)
