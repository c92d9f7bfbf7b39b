"""Arrays where onnx and ``ml_dtypes`` are: each of ONNX's element types has a dtype."""

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from conformance_parts.exchange import Tensor, Value

_SUB_BYTE = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")


def known_array(tensor: Tensor) -> Any:
    """Give the array of a tensor."""
    if tensor.texts is not None:
        return np.array(tensor.texts, object).reshape(tensor.shape)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.element_type)
    return np.frombuffer(tensor.data, dtype).reshape(tensor.shape).copy()


def known_tensor(array: Any) -> Tensor:
    """Give the tensor to send.

    Args:
        array: Of any of ONNX's element types; whatever numpy makes one of.
    """
    array = np.asarray(array)
    if array.dtype.kind in "OSU":
        texts = [each.decode() if isinstance(each, bytes) else str(each) for each in array.ravel()]
        return Tensor(TensorProto.STRING, list(array.shape), b"", texts)
    number = helper.np_dtype_to_tensor_dtype(array.dtype)
    return Tensor(number, list(array.shape), array.tobytes())


def sent(value: Any) -> Value:
    """Give what is sent of a case's input.

    Args:
        value: An array, a sequence of them, or None.
    """
    if isinstance(value, (list, tuple)):
        return [None if each is None else known_tensor(each) for each in value]
    return None if value is None else known_tensor(value)


def received(value: Value) -> Any:
    """Give what a peer answered.

    Returns:
        An array, a sequence of them, or None.
    """
    if isinstance(value, list):
        return [None if each is None else known_array(each) for each in value]
    return None if value is None else known_array(value)


def is_sub_byte(value: Any) -> bool:
    """Whether the elements of an array share bytes in ONNX's files."""
    return isinstance(value, np.ndarray) and value.dtype.name in _SUB_BYTE


def widened(value: Any) -> Any:
    """Give an array for a peer that has float32, whole numbers and bytes alone.

    Args:
        value: Of a case; what is no array of numbers stays.
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSUc":
        return value
    if value.dtype.kind == "b" or value.dtype.name.startswith(("int", "uint")):
        return value if value.dtype.name in {"int8", "uint8"} else value.astype(np.int64)
    with np.errstate(all="ignore"):
        return value.astype(np.float32)


def as_wanted(found: Any, wanted: Any) -> Any:
    """Cast an output of such a peer to the dtype that a case wants.

    Args:
        found: Of the peer.
        wanted: Of the case; anything but arrays of numbers stays as it was found.
    """
    arrays = isinstance(found, np.ndarray) and isinstance(wanted, np.ndarray)
    if not arrays or {found.dtype.kind, wanted.dtype.kind} & set("OSUc"):
        return found
    if found.dtype.kind == "f" and wanted.dtype.kind in "iu":
        found = np.rint(found)
    with np.errstate(all="ignore"):
        return found.astype(wanted.dtype)
