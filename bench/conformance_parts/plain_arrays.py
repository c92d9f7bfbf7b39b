"""Arrays of peers that have numpy alone: elements that it has no dtype for lie as whole numbers."""

import sys
from typing import Any, Final

import numpy as np

from conformance_parts.exchange import Tensor

STRING: Final = 8
BFLOAT16: Final = 16
NATIVE: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64",
    15: "complex128",
}  # fmt: skip
"""Dtypes of numpy by ONNX's numbers."""

_NUMBERS: Final = {np.dtype(name): number for number, name in NATIVE.items()}
assert sys.byteorder == "little"  # noqa: S101  # bytes cross as they are


def array_of(tensor: Tensor) -> Any:
    """Give the array of a tensor.

    Args:
        tensor: That was sent; where numpy has no such dtype, of unsigned numbers as wide.

    Returns:
        An array that may be written to.
    """
    if tensor.texts is not None:
        return np.array(tensor.texts, object).reshape(tensor.shape)
    dtype = NATIVE.get(tensor.element_type, "u2" if tensor.element_type == BFLOAT16 else "u1")
    return np.frombuffer(tensor.data, dtype).reshape(tensor.shape).copy()


def tensor_of(array: Any) -> Tensor:
    """Give the tensor to answer with.

    Args:
        array: Of numbers or text; whatever numpy makes one of.
    """
    array = np.asarray(array)
    if array.dtype.kind in "OSU":
        texts = [_text(each) for each in array.ravel().tolist()]
        return Tensor(STRING, list(array.shape), b"", texts)
    return Tensor(_NUMBERS[array.dtype], list(array.shape), array.tobytes())


def unpacked(data: bytes, bits: int, count: int, *, is_signed: bool) -> bytes:
    """Give each element a byte.

    Args:
        data: Elements of a few bits, the first in the lowest.
        bits: Of an element.
        count: Of elements.
        is_signed: Whether the highest bit is a sign.
    """
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    each = (np.frombuffer(data, np.uint8)[:, None] >> shifts).reshape(-1)[:count]
    each = each & np.uint8((1 << bits) - 1)
    sign = np.uint8(1 << (bits - 1))
    return ((each ^ sign) - sign if is_signed else each).tobytes()


def _text(element: Any) -> str:
    return element.decode() if isinstance(element, bytes) else str(element)
