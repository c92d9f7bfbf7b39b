"""In which dtype a composite computes: narrow floats in float32, wider ones in their own."""

from collections.abc import Mapping
from typing import Final

import ml_dtypes
import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import is_floating
from walle_stream.errors import DTypeError, LoweringError

_FLOAT32: Final = np.dtype(np.float32)

_BY_CODE: Final[Mapping[int, DType]] = {
    1: _FLOAT32, 10: np.dtype(np.float16), 11: np.dtype(np.float64),
    16: np.dtype(ml_dtypes.bfloat16),
}  # fmt: skip


def wide_dtype(*dtypes: DType) -> DType:
    """Give the dtype to compute in: the widest of some, at least float32.

    Args:
        *dtypes: Of floating numbers.

    Returns:
        float32 or float64.

    Raises:
        DTypeError: One is not of floating numbers.
    """
    for dtype in dtypes:
        if not is_floating(dtype):
            raise DTypeError(f"floating numbers are expected, not {dtype.name}")
    return max((_FLOAT32, *dtypes), key=lambda dtype: dtype.itemsize)


def widened(builder: Builder, x: Tensor) -> Tensor:
    """Give a tensor in the dtype to compute in.

    Returns:
        ``x`` itself where it is float32 or float64.
    """
    return builder.cast(x, wide_dtype(x.dtype))


def float_dtype(code: int, name: str) -> DType:
    """Give the dtype that an attribute names.

    Returns:
        Of floating numbers.

    Raises:
        LoweringError: It names another.
    """
    if code not in _BY_CODE:
        raise LoweringError(f"attribute {name!r} names element type {code}, no floating one")
    return _BY_CODE[code]
