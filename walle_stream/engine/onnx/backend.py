"""The ONNX backend API: ``prepare``, ``run_model``, ``run_node``, ``supports_device``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper
from onnx.backend.base import Backend, BackendRep

from walle_stream.engine.backends import backend_named
from walle_stream.engine.graph import Model
from walle_stream.engine.inputs import checked_inputs
from walle_stream.engine.module import Backend as EngineBackend
from walle_stream.engine.module import GraphRunner
from walle_stream.engine.onnx.importer import OPSETS, import_model
from walle_stream.engine.values import plain
from walle_stream.errors import EngineError, ModelError


class EngineRep(BackendRep):  # type: ignore[misc]  # onnx is not typed here
    """A model that is ready to run."""

    def __init__(self, model: Model, backend: EngineBackend) -> None:
        """Take over a model and the backend that runs it."""
        self._model = model
        self._runner = GraphRunner(model.graph, model.functions, backend)

    def run(self, inputs: Any, **_kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs, in order; ``inputs`` is one array, or a list in the graph's order.

        Raises:
            EngineError: The model cannot be run, or not with these inputs.
        """
        arrays = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        graph = self._model.graph
        names = [name for name in graph.inputs if name not in graph.constants]
        if len(arrays) > len(names):
            names = list(graph.inputs)
        if len(arrays) > len(names):
            raise EngineError(f"{len(arrays)} inputs are given, more than {len(names)}")
        named = dict(zip(names, arrays, strict=False))
        return tuple(map(plain, self._runner.run(checked_inputs(graph, named))))


class EngineBackendApi(Backend):  # type: ignore[misc]  # onnx is not typed here
    """The backend class that ``onnx.backend.test`` calls."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_kwargs: Any) -> EngineRep:
        """Prepare a model for runs.

        Raises:
            EngineError: The model cannot be run, or not on that device.
            ModelError: The argument is not a model.
        """
        if not cls.supports_device(device):
            raise EngineError(f"there is no device {device!r} here: models run on the CPU")
        if not isinstance(model, ModelProto):
            raise ModelError(
                f"a ModelProto is expected, not {type(model).__name__}: onnx.load makes one"
            )
        return EngineRep(import_model(model), backend_named("numpy"))

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Sequence[Any], device: str = "CPU", outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:  # fmt: skip  # the arguments are onnx's
        """Run a node and return its outputs, in order; ``opset_version`` defaults to the newest.

        ``inputs`` has an array for each name that the node reads; ``outputs_info`` is ignored.

        Raises:
            EngineError: The node cannot be run, or not with these inputs.
        """
        del outputs_info
        names = [name for name in node.input if name]
        arrays = [np.asarray(array) for array in inputs]
        if len(names) != len(arrays):
            raise EngineError(f"{len(arrays)} inputs are given, the node reads {len(names)}")
        opsets = {"": OPSETS[""], node.domain: OPSETS.get(node.domain, 1)}
        opsets[node.domain] = int(kwargs.get("opset_version", opsets[node.domain]))
        types = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(names, arrays, strict=True)
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], "node", types, outputs)
        imports = [helper.make_opsetid(*opset) for opset in opsets.items()]
        model = helper.make_model(graph, opset_imports=imports)
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can run on a device."""
        return device.split(":", maxsplit=1)[0] == "CPU"


prepare = EngineBackendApi.prepare
run_model = EngineBackendApi.run_model
run_node = EngineBackendApi.run_node
supports_device = EngineBackendApi.supports_device
