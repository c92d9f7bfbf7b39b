"""Tensors of ONNX files as arrays, those beside the file included."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from walle_stream.engine.program import Array, DType
from walle_stream.engine.rules import check_size
from walle_stream.errors import DTypeError, ModelError

_TEXT: Final = np.dtype(object)


def dtype_of(code: int) -> DType:
    """Give the dtype of an element type.

    Args:
        code: One of ``TensorProto.DataType``.

    Returns:
        numpy's dtype, or one of ``ml_dtypes``; ``object`` of strings.

    Raises:
        DTypeError: There is no such type.
    """
    if code == TensorProto.STRING:
        return _TEXT
    try:
        return np.dtype(helper.tensor_dtype_to_np_dtype(code))
    except (KeyError, ValueError) as error:
        raise DTypeError(f"there is no element type {code}") from error


def array_of(proto: TensorProto, folder: Path | None = None) -> Array:
    """Read a tensor.

    Args:
        proto: As in the file.
        folder: Where data outside of the file may be.

    Returns:
        Its elements, not to be written to.

    Raises:
        ModelError: Its data is short, or outside of the folder.
    """
    shape = check_size(tuple(proto.dims), f"tensor {proto.name!r}")
    if proto.data_location == TensorProto.EXTERNAL:
        proto = _with_data(proto, folder)
    elif not shape and not _has_data(proto) and proto.data_type != TensorProto.STRING:
        raise ModelError(f"tensor {proto.name!r} has no data")
    try:
        array: Array = np.asarray(numpy_helper.to_array(proto))
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"tensor {proto.name!r} cannot be read: {error}") from error
    if proto.data_type == TensorProto.STRING:
        array = np.array([_text(each) for each in proto.string_data], _TEXT).reshape(shape)
    if array.shape != shape:
        raise ModelError(f"tensor {proto.name!r} has {array.shape}, not {shape}")
    array.flags.writeable = False
    return array


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _has_data(proto: TensorProto) -> bool:
    return bool(
        proto.raw_data or proto.float_data or proto.int32_data or proto.int64_data
        or proto.double_data or proto.uint64_data
    )  # fmt: skip


def _with_data(proto: TensorProto, folder: Path | None) -> TensorProto:
    given = {each.key: each.value for each in proto.external_data}
    location = given.get("location", "")
    if folder is None:
        raise ModelError(f"tensor {proto.name!r} is in {location!r}: load the model from its file")
    root = folder.resolve()
    path = (root / location).resolve()
    if not location or not path.is_relative_to(root) or not path.is_file():
        raise ModelError(
            f"tensor {proto.name!r} is in {location!r}, which is no file of the model's folder"
        )
    offset, length = int(given.get("offset", 0)), given.get("length")
    if offset < 0 or (length is not None and int(length) < 0):
        raise ModelError(f"tensor {proto.name!r} is at a negative place of {location!r}")
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(int(length)) if length is not None else file.read()
    whole = onnx.TensorProto()
    whole.CopyFrom(proto)
    whole.data_location = TensorProto.DEFAULT
    whole.raw_data = data
    return whole


def element_type(array: Any) -> int:
    """Give the element type of an array.

    Args:
        array: Of any dtype of this engine.

    Returns:
        One of ``TensorProto.DataType``.
    """
    return int(helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype))
