"""Subsets of ONNX's cases, by the operators and types of a model."""

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
"""Operators of the models in Walle's measurements, as exporters write them."""

MNN_OPERATORS: Final = frozenset(
    {
        "ATan", "Abs", "Acos", "Acosh", "Add", "And", "ArgMax", "ArgMin", "Asin", "Asinh",
        "Atan", "Atanh", "AveragePool", "BatchNormalization", "BitShift", "Cast",
        "CastLike", "Ceil", "Celu", "Clip", "Compress", "Concat", "ConcatFromSequence",
        "Constant", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Cosh", "CumSum",
        "DepthToSpace", "DequantizeLinear", "Det", "Div", "Dropout",
        "DynamicQuantizeLinear", "Einsum", "Elu", "Equal", "Erf", "Erfc", "Erfinv", "Exp",
        "Expand", "Expm1", "EyeLike", "Flatten", "Floor", "GRU", "Gather", "GatherElements",
        "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool",
        "Greater", "GreaterOrEqual", "GridSample", "GridSampler", "HardSigmoid",
        "HardSwish", "Identity", "If", "InstanceNormalization", "LRN", "LSTM", "LayerNorm",
        "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "Log1p",
        "LogSoftmax", "Loop", "LpNormalization", "LpPool", "MatMul", "Max", "MaxPool",
        "MaxRoiPool", "MaxUnpool", "Mean", "MeanVarianceNormalization", "Min", "Mod", "Mul",
        "Neg", "NegativeLogLikelihoodLoss", "NonMaxSuppression", "NonZero", "Not", "OneHot",
        "Or", "PRelu", "Pad", "Pow", "QuantizeLinear", "RNN", "RandomNormal",
        "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Range", "Reciprocal",
        "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
        "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu",
        "Reshape", "Resize", "ReverseSequence", "RoiAlign", "Round", "STFT", "Scatter",
        "ScatterElements", "ScatterND", "Selu", "SequenceAt", "SequenceConstruct",
        "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "Shape",
        "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softmax",
        "SoftmaxCrossEntropyLoss", "Softplus", "Softsign", "SpaceToDepth", "Split",
        "SplitToSequence", "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh",
        "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu", "Unique", "Unsqueeze",
        "Upsample", "Where", "Xor",
    }
)  # fmt: skip
"""Operators of ONNX that the converter of MNN 3.6.1 lists (MNNConvert -f ONNX --OP)."""

CORE_TYPES: Final = frozenset(
    {
        onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16,
        onnx.TensorProto.INT32, onnx.TensorProto.INT64, onnx.TensorProto.UINT8,
        onnx.TensorProto.INT8, onnx.TensorProto.BOOL,
    }
)  # fmt: skip
"""Element types that most engines support."""

LOWERED: Final = frozenset({Kind.TRANSFORM, Kind.COMPOSITE})
"""Kinds of operators that lowering replaces by rasters and atomic operators."""


def subsets_of(kind: str, name: str, model: bytes) -> list[str]:
    """Return the names of the subsets that have a case.

    Args:
        kind: Kind of the case.
        name: Name of the case, which only tells whether it is the body of a function.
        model: Model of the case.
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
    if operators <= MNN_OPERATORS and _types_of(proto.graph) <= CORE_TYPES:
        found.append("core")
    kinds = {_kind(node) for node in proto.graph.node}
    if kinds and kinds <= LOWERED:
        found.append("toy")
    return found


def _types_of(graph: onnx.GraphProto) -> set[int | None]:
    """Return the element types of a graph's inputs, outputs and constants; None for no tensor."""
    found: set[int | None] = {each.data_type for each in graph.initializer}
    for value in (*graph.input, *graph.output):
        is_tensor = value.type.WhichOneof("value") == "tensor_type"
        found.add(value.type.tensor_type.elem_type if is_tensor else None)
    return found


def _kind(node: onnx.NodeProto) -> Kind | None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    rule = rules().get((domain, node.op_type))
    return None if rule is None else rule.kind
