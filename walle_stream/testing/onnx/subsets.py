"""Which cases a count is of: subsets of ONNX's cases, by what a model uses."""

from typing import Final

import onnx

from walle_stream.engine.lowering.registry import Kind, rules

LIGHT_NETS: Final = frozenset(
    {
        "Add", "AveragePool", "BatchNormalization", "Concat", "ConstantOfShape", "Conv",
        "Dropout", "Gemm", "GlobalAveragePool", "LRN", "MaxPool", "Mul", "Relu", "Reshape",
        "Softmax", "Sum", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Operators of the nine architectures that ONNX ships as light nets."""

PAPER_MODELS: Final = frozenset(
    {
        # ResNet, MobileNetV2, SqueezeNet, ShuffleNetV2
        "Conv", "BatchNormalization", "Relu", "MaxPool", "GlobalAveragePool", "Flatten", "Gemm",
        "Add", "Identity", "Constant", "Clip", "ReduceMean", "Reshape", "Shape", "Gather",
        "Unsqueeze", "Concat", "HardSwish", "Transpose", "Split", "Slice",
        # BERT
        "MatMul", "Mul", "Div", "Sub", "Sqrt", "Pow", "Erf", "Tanh", "Softmax", "Cast", "Where",
        "Expand", "Equal", "LayerNormalization", "Gelu", "OneHot", "Squeeze", "ConstantOfShape",
        # DIN
        "Sigmoid", "PRelu", "ReduceSum", "Tile",
        # VoxelMorph
        "LeakyRelu", "GridSample", "ConvTranspose", "Upsample",
    }
)  # fmt: skip
"""Operators of the models that Walle is measured with, as exporters write them."""

LOWERED: Final = frozenset({Kind.TRANSFORM, Kind.COMPOSITE})
"""Kinds of operators that no backend knows of: rasters and atomics take their place."""


def subsets_of(kind: str, name: str, model: bytes) -> list[str]:
    """Say which counts a case is part of.

    Args:
        kind: Of the case.
        name: Of the case; asked for one thing alone, whether it is a function's body.
        model: Of the case.

    Returns:
        Names of subsets.
    """
    if kind != "node":
        return [kind]
    found = ["node"]
    proto = onnx.load_model_from_string(model)
    operators = {
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for node in proto.graph.node
    }
    if "_expanded" not in name and operators <= LIGHT_NETS | PAPER_MODELS:
        found.append("paper")
    kinds = {_kind(node) for node in proto.graph.node}
    if kinds and kinds <= LOWERED:
        found.append("toy")
    return found


def _kind(node: onnx.NodeProto) -> Kind | None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    rule = rules().get((domain, node.op_type))
    return None if rule is None else rule.kind
