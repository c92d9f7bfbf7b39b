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
from walle_stream.errors import EngineError, ModelError


class EngineRep(BackendRep):  # type: ignore[misc]  # onnx is not typed here
    """A model that is ready to run."""

    def __init__(self, model: Model, backend: EngineBackend) -> None:
        """Take over."""
        self._model = model
        self._runner = GraphRunner(model.graph, model.functions, backend)

    def run(self, inputs: Any, **_kwargs: Any) -> tuple[Any, ...]:
        """Give its outputs, in order, of one array or of inputs in the order of the graph's.

        Raises:
            EngineError: It cannot be run, or not with these inputs.
        """
        arrays = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        graph = self._model.graph
        names = [name for name in graph.inputs if name not in graph.constants]
        if len(arrays) > len(names):
            names = list(graph.inputs)
        if len(arrays) > len(names):
            raise EngineError(f"{len(arrays)} inputs are given, of {len(names)} at most")
        named = dict(zip(names, arrays, strict=False))
        return tuple(self._runner.run(checked_inputs(graph, named)))


class EngineBackendApi(Backend):  # type: ignore[misc]  # onnx is not typed here
    """What ``onnx.backend.test`` calls."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_kwargs: Any) -> EngineRep:
        """Make a model ready.

        Raises:
            EngineError: It cannot be run, or not on that device.
            ModelError: It is no model.
        """
        if not cls.supports_device(device):
            raise EngineError(f"there is no device {device!r} here: models are run on the CPU")
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
        """Run a node, of the newest opset unless ``opset_version`` says another: outputs in order.

        ``inputs`` are arrays, one for each name that it reads; ``outputs_info`` is ignored.

        Raises:
            EngineError: It cannot be run, or not with these inputs.
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
        """Whether a device can be asked for."""
        return device.split(":", maxsplit=1)[0] == "CPU"


prepare = EngineBackendApi.prepare
run_model = EngineBackendApi.run_model
run_node = EngineBackendApi.run_node
supports_device = EngineBackendApi.supports_device
