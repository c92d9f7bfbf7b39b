"""onnxruntime on a case, in its own process."""

import ctypes
import os
from typing import Any, Final

import numpy as np

from conformance_parts.exchange import Question, Tensor, Value
from conformance_parts.plain_arrays import NATIVE, STRING, array_of, tensor_of, unpacked

# it knows operators of opsets beyond those that it calls released, and is asked for them
os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"

import onnxruntime  # after what it reads when it is imported

PACKED: Final = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2}
"""Bits of elements that share a byte, by ONNX's numbers: uint4, int4, float4, uint2, int2."""

_SIGNED: Final = frozenset({22, 26})


def evaluate(question: Question) -> list[list[Value]]:
    """Run a case.

    Args:
        question: ``attempt`` is ``optimised`` or ``plain``.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if question.attempt == "plain":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        question.model, options, providers=["CPUExecutionProvider"]
    )
    run = _run_wrapped if _is_foreign(session, question) else _run
    return [run(session, question, inputs) for inputs in question.sets]


def _is_foreign(session: Any, question: Question) -> bool:
    """Whether numpy lacks an element type of what goes in or comes out."""
    given = [each for inputs in question.sets for each in inputs if isinstance(each, Tensor)]
    foreign = ("float8", "float4", "bfloat16", "int4", "int2", "uint4", "uint2")
    made = [each.type for each in session.get_outputs()]
    return any(each.element_type not in NATIVE and each.texts is None for each in given) or any(
        each.startswith("tensor(") and any(name in each for name in foreign) for each in made
    )


def _run(session: Any, question: Question, inputs: list[Value]) -> list[Value]:
    feeds = {name: _given(value) for name, value in zip(question.inputs, inputs, strict=True)}
    return [_found(each) for each in session.run(question.outputs, feeds)]


def _given(value: Value) -> Any:
    if isinstance(value, list):
        return [None if each is None else array_of(each) for each in value]
    return None if value is None else array_of(value)


def _found(value: Any) -> Value:
    if isinstance(value, list):
        return [tensor_of(each) for each in value]
    return None if value is None else tensor_of(value)


def _run_wrapped(session: Any, question: Question, inputs: list[Value]) -> list[Value]:
    """Run it with values in onnxruntime's own memory."""
    arrays = [_given(each) for each in inputs]
    feeds = {
        name: _wrapped(value, array)
        for name, value, array in zip(question.inputs, inputs, arrays, strict=True)
    }
    return [_unwrapped(each) for each in session.run_with_ort_values(question.outputs, feeds)]


def _wrapped(value: Any, array: Any) -> Any:
    if value.element_type in NATIVE or value.element_type == STRING:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
    return make(array, value.element_type)


def _unwrapped(value: Any) -> Tensor:
    number, shape = value.element_type(), list(value.shape())
    if number in NATIVE or number == STRING:
        return tensor_of(value.numpy())
    count = int(np.prod(shape))
    if number not in PACKED:
        size = value.tensor_size_in_bytes()
        return Tensor(number, shape, ctypes.string_at(value.data_ptr(), size) if size else b"")
    bits = PACKED[number]
    packed = ctypes.string_at(value.data_ptr(), -(-count * bits // 8)) if count else b""
    return Tensor(number, shape, unpacked(packed, bits, count, is_signed=number in _SIGNED))
