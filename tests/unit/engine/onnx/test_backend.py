"""The ONNX backend API: devices, nodes, and what is no model."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from walle_stream.engine.onnx import backend
from walle_stream.errors import EngineError, ModelError

X = np.array([-1.0, 2.0], np.float32)
RELU = helper.make_node("Relu", ["x"], ["y"])


@pytest.fixture
def relu():
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    return helper.make_model(helper.make_graph([RELU], "g", ends[:1], ends[1:]))


def test_a_model_runs(relu):
    (y,) = backend.run_model(relu, [X])
    assert y.tolist() == backend.prepare(relu).run([X])[0].tolist() == [0.0, 2.0]


def test_a_node_runs():
    assert backend.run_node(RELU, [X])[0].tolist() == [0.0, 2.0]
    assert backend.EngineBackendApi.run_node(RELU, [X], opset_version=6)[0].tolist() == [0.0, 2.0]
    with pytest.raises(EngineError, match="0 inputs are given, the node reads 1"):
        backend.run_node(RELU, [])


def test_devices_that_are_not_there_are_refused(relu):
    assert backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    for ask in (backend.prepare, lambda *given: backend.run_model(given[0], [X], given[1])):
        with pytest.raises(EngineError, match="no device 'CUDA' here"):
            ask(relu, "CUDA")


def test_bytes_are_no_model(relu):
    with pytest.raises(ModelError, match="a ModelProto is expected, not bytes"):
        backend.prepare(relu.SerializeToString())
