"""Draws an ONNX model node by node, with weights and inputs of a seed."""

from collections.abc import Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

type Array = NDArray[Any]

_IR_VERSION: Final = 8
"""Old enough for every peer."""


class Drawn(NamedTuple):
    """A model, and what it can be run with."""

    model: ModelProto
    inputs: dict[str, Array]


class Drawing:
    """A model that is being drawn; names are made here."""

    def __init__(self, name: str, seed: int, opset: int = 17) -> None:
        """Begin."""
        self._name = name
        self._opset = opset
        self._weights = np.random.default_rng(seed)
        self._samples = np.random.default_rng([seed, 1])
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, tuple[int, ...]] = {}

    def input(
        self, name: str, shape: Sequence[int], below: int | None = None, least: int = 0
    ) -> str:
        """Declare an input.

        Args:
            name: Of it.
            shape: Of it.
            below: For whole numbers; None: normal ones.
            least: The least of whole numbers.
        """
        self._inputs[name] = (
            self._samples.standard_normal(shape).astype(np.float32)
            if below is None
            else self._samples.integers(least, below, shape)
        )
        return name

    def constant(self, data: Any, dtype: Any = np.float32) -> str:
        """Keep an array; gives its name."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def normal(self, shape: Sequence[int], deviation: float, mean: float = 0.0) -> str:
        """Make normal weights; gives their name."""
        data = self._weights.standard_normal(shape, np.float32)
        return self.constant(data * np.float32(deviation) + np.float32(mean))

    def uniform(self, shape: Sequence[int], low: float, high: float) -> str:
        """Make uniform weights; gives their name."""
        return self.constant(self._weights.uniform(low, high, shape))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Draw a node of one output; gives its name."""
        return self.nodes(operator, *inputs, count=1, **attributes)[0]

    def nodes(self, operator: str, *inputs: str, count: int, **attributes: Any) -> list[str]:
        """Draw a node of several outputs; gives their names."""
        number = len(self._nodes)
        outputs = [f"{operator.lower()}{number}_{each}" for each in range(count)]
        title = f"{operator}_{number}"
        self._nodes.append(helper.make_node(operator, inputs, outputs, title, **attributes))
        return outputs

    def convolution(  # noqa: PLR0913  # as Conv
        self, x: str, channels: int, count: int, kernel: Sequence[int], *, stride: int = 1,
        group: int = 1, bias: bool = False, gain: float = 2.0,
    ) -> str:  # fmt: skip
        """Draw a convolution that keeps the size, up to its stride; weights after He."""
        shape = (count, channels // group, *kernel)
        inputs = [x, self.normal(shape, (gain / prod(shape[1:])) ** 0.5)]
        if bias:
            inputs.append(self.normal((count,), 0.05))
        pads = [each // 2 for each in kernel] * 2
        return self.node(
            "Conv", *inputs, kernel_shape=list(kernel), strides=[stride] * len(kernel), pads=pads,
            dilations=[1] * len(kernel), group=group,
        )  # fmt: skip

    def batch_normalization(self, x: str, channels: int, gain: float = 1.0) -> str:
        """Draw a normalization by stored moments, which scales by about ``gain``."""
        scale = self.uniform((channels,), 0.8 * gain, 1.2 * gain)
        bias, mean = self.normal((channels,), 0.1), self.normal((channels,), 0.1)
        variance = self.uniform((channels,), 0.7, 1.3)
        return self.node("BatchNormalization", x, scale, bias, mean, variance, epsilon=1e-5)

    def dense(self, x: str, channels: int, count: int) -> str:
        """Draw a fully connected layer of a matrix, as ``Gemm``."""
        weights = self.normal((count, channels), channels**-0.5)
        return self.node("Gemm", x, weights, self.normal((count,), 0.05), transB=1)

    def output(self, value: str, name: str, shape: Sequence[int]) -> None:
        """Give a value as an output of the model."""
        self._nodes.append(helper.make_node("Identity", [value], [name], f"Output_{name}"))
        self._outputs[name] = tuple(shape)

    def drawn(self) -> Drawn:
        """Finish."""
        kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
        inputs = [
            helper.make_tensor_value_info(name, kinds[data.dtype.kind], data.shape)
            for name, data in self._inputs.items()
        ]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in self._outputs.items()
        ]
        graph = helper.make_graph(self._nodes, self._name, inputs, outputs, self._constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self._opset)],
            producer_name="walle-stream bench",
            ir_version=_IR_VERSION,
        )
        return Drawn(model, self._inputs)
