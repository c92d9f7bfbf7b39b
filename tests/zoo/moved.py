"""Copies of a model whose weights are moved by their last places."""

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

SHARE = 2.0**-20
"""Of themselves: about what sums in another order, and other approximations of a function, give."""

COPIES = 8


def moved(file: ModelProto, seed: int) -> ModelProto:
    """Copy a model with its weights of float32 moved; whole ones, such as sizes, stay as they are."""
    copy = ModelProto()
    copy.CopyFrom(file)
    rng = np.random.default_rng(seed)
    constants = [each for each in copy.graph.node if each.op_type == "Constant"]
    inner = [attribute.t for node in constants for attribute in node.attribute]
    for tensor in (*copy.graph.initializer, *inner):
        if tensor.data_type == TensorProto.FLOAT:
            data = numpy_helper.to_array(tensor)
            by = 1 + rng.uniform(-SHARE, SHARE, data.shape)
            other = np.where(data == np.round(data), data, data * by).astype(data.dtype)
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    return copy
