"""Reads tensors of ONNX files, and external ones, as arrays."""

import os
import stat
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from walle_stream.engine.limits import Limits, check_memory
from walle_stream.engine.lowering.element_types import element_type
from walle_stream.engine.program import Array, DType
from walle_stream.engine.rules import BOOL, TEXT, check_size, is_foreign, native
from walle_stream.errors import EngineError, ModelError

_PACKED_BITS: Final = {
    TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4,
    TensorProto.INT2: 2, TensorProto.UINT2: 2,
}  # fmt: skip


def array_of(proto: TensorProto, folder: Path | None = None) -> Array:
    """Read a tensor as a read-only array; ``folder`` has external data.

    Raises:
        ModelError: The data does not fit the shape, or is outside the folder.
    """
    try:
        array = _read(proto, folder)
    except EngineError as error:
        raise ModelError(f"tensor {proto.name!r}: {error.message}") from error
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"tensor {proto.name!r} cannot be read: {reason}") from error
    array.flags.writeable = False
    return array


def _read(proto: TensorProto, folder: Path | None) -> Array:
    shape = check_size(tuple(proto.dims), "it")
    dtype = element_type(proto.data_type)
    if proto.data_location == TensorProto.EXTERNAL:
        if dtype == TEXT:
            raise ModelError("strings cannot be external data")
        return _of_bytes(proto, _external(proto, folder), shape, dtype)
    if dtype == TEXT:
        _check_count(len(proto.string_data), prod(shape), shape)
        try:
            texts = [text.decode("utf-8") for text in proto.string_data]
        except UnicodeDecodeError as error:
            raise ModelError(f"it has text that is not UTF-8: {error}") from error
        return np.array(texts, TEXT).reshape(shape)
    if proto.HasField("raw_data"):
        return _of_bytes(proto, proto.raw_data, shape, dtype)
    # check the number of elements before any conversion
    count = max(len(data) for data in (
        proto.float_data, proto.int32_data, proto.int64_data, proto.double_data, proto.uint64_data,
    ))  # fmt: skip
    if proto.data_type in _PACKED_BITS:
        _check_count(count, _nbytes(proto, shape, dtype), shape)
    else:
        _check_count(count, prod(shape) * (2 if dtype.kind == "c" else 1), shape)
    array: Array = np.asarray(numpy_helper.to_array(proto))
    if array.shape != shape:
        raise ModelError(f"its shape is {list(array.shape)}, not {list(shape)}")
    return array


def _check_count(count: int, wanted: int, shape: tuple[int, ...], what: str = "elements") -> None:
    if count != wanted:
        raise ModelError(f"it has {count} {what}, but its shape {list(shape)} needs {wanted}")


def _nbytes(proto: TensorProto, shape: tuple[int, ...], dtype: DType) -> int:
    bits = _PACKED_BITS.get(proto.data_type, 8 * dtype.itemsize)
    return -(-prod(shape) * bits // 8)


def _of_bytes(proto: TensorProto, data: bytes, shape: tuple[int, ...], dtype: DType) -> Array:
    _check_count(len(data), _nbytes(proto, shape, dtype), shape, "bytes")
    if proto.data_type in _PACKED_BITS:
        whole = onnx.TensorProto(dims=shape, data_type=proto.data_type, raw_data=data)
        return np.asarray(numpy_helper.to_array(whole)).reshape(shape)
    if dtype == BOOL:
        # numpy's bool must be 0 or 1
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    little = dtype if is_foreign(dtype) else dtype.newbyteorder("<")
    return native(np.frombuffer(data, little)).reshape(shape)


def _external(proto: TensorProto, folder: Path | None) -> bytes:
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(f"it is in {location!r}: load the model from its file")
    nbytes = _nbytes(proto, tuple(proto.dims), element_type(proto.data_type))
    check_memory(nbytes, Limits())
    offset, length = _number(entries, "offset", 0), _number(entries, "length", nbytes)
    _check_count(length, nbytes, tuple(proto.dims), "bytes")
    root = folder.resolve()
    outside = ModelError(f"it is in {location!r}, which is not a file in the model's folder")
    try:
        # links are followed here, but not in the open call
        path = (root / location).resolve()
        if not location or not path.is_relative_to(root):
            raise outside
        # O_NONBLOCK: opening a pipe must not wait for its writer; it is refused below
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError, RuntimeError) as error:
        if error is outside:
            raise
        raise outside from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise outside
    with os.fdopen(handle, "rb") as file:
        rest = os.fstat(file.fileno()).st_size - offset
        if rest < nbytes:
            raise ModelError(f"{location!r} has {max(rest, 0)} bytes from {offset}, not {nbytes}")
        file.seek(offset)
        data = file.read(nbytes)
    _check_count(len(data), nbytes, tuple(proto.dims), "bytes")
    return data


def _number(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None or not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 20):  # noqa: PLR2004  # of int64
        raise ModelError(f"its {key} is {text[:40]!r}, not a whole number from 0")
    return int(text)


def dense_of(proto: onnx.SparseTensorProto, folder: Path | None = None) -> Array:
    """Read a sparse tensor as a dense array; see ``array_of``.

    Raises:
        ModelError: An index is outside the shape, or the numbers of indices and values differ.
    """
    name = proto.values.name
    values, indices = array_of(proto.values, folder), array_of(proto.indices, folder)
    try:
        shape = check_size(tuple(proto.dims), "it")
        check_memory(prod(shape) * values.dtype.itemsize, Limits())
        flat = _flat_indices(indices, values, shape)
    except EngineError as error:
        raise ModelError(f"sparse tensor {name!r}: {error.message}") from error
    dense = np.zeros(prod(shape), values.dtype)
    if values.dtype == TEXT:
        dense[:] = ""
    dense[flat] = values
    dense.flags.writeable = False
    return dense.reshape(shape)


def _flat_indices(indices: Array, values: Array, shape: tuple[int, ...]) -> Array:
    if values.ndim != 1 or indices.dtype != np.int64:
        raise ModelError(f"{values.dtype.name}{list(values.shape)} at {indices.dtype.name} indices")
    if indices.shape not in [(values.size,), (values.size, len(shape))]:
        raise ModelError(f"indices of shape {list(indices.shape)} of {values.size} values")
    sizes: Any = prod(shape) if indices.ndim == 1 else np.array(shape, np.int64)
    wrong = (indices < 0) | (indices >= sizes)
    if wrong.any():
        raise ModelError(f"index {indices[wrong][0]} is not in its shape {list(shape)}")
    if indices.ndim == 1:
        return indices
    return np.ravel_multi_index(tuple(indices.T), shape) if shape else np.zeros(1, np.int64)
