"""Inputs of a model, the same for the same seed."""

import zlib

import numpy as np
import onnx

from tests.zoo.manifest import Draw, ZooModel


def drawn(file, model: ZooModel, seed: int):
    """Make arrays by name of input.

    Args:
        file: The model, an ``onnx.ModelProto``.
        model: What the manifest says of it.
        seed: Of the numbers, with the model's name.

    Raises:
        ValueError: The manifest names an input that is none, or one has no size.
    """
    graph = file.graph
    constants = {each.name for each in graph.initializer}
    declared = {each.name: each.type.tensor_type for each in graph.input}
    given = [name for name in declared if name not in constants]
    unknown = sorted(set(model.inputs) - set(given))
    if unknown:
        raise ValueError(f"{model.name} has no inputs {unknown}")
    rng = np.random.default_rng([seed, zlib.crc32(model.name.encode())])
    return {
        name: _drawn(name, declared[name], model.inputs.get(name, Draw()), rng) for name in given
    }


def _drawn(name, declared, draw, rng):
    shape = draw.shape
    if shape is None:
        shape = tuple(each.dim_value for each in declared.shape.dim)
        if 0 in shape:
            raise ValueError(f"the manifest must say the shape of {name}: {shape} is not all known")
    if draw.texts:
        return rng.choice(draw.texts, shape)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(declared.elem_type)
    if draw.value is not None:
        return np.full(shape, draw.value, dtype)
    if draw.low is None:
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(int(draw.low), int(draw.high), shape, dtype)
    return np.asarray(rng.uniform(draw.low, draw.high, shape)).astype(dtype)
