"""Which floating dtype a composite computes in, and how its output gets its own back."""

import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.rules import is_floating
from walle_stream.errors import DTypeError

_FLOAT32 = np.dtype(np.float32)
_FLOAT64 = np.dtype(np.float64)


def require_floating(x: Tensor, what: str = "input 0") -> Tensor:
    """Refuse a tensor of anything but floating numbers.

    Raises:
        DTypeError: It has another dtype.
    """
    if not is_floating(x.dtype):
        raise DTypeError(f"{what} must be of floating numbers, not {x.dtype.name}")
    return x


def weighted_dtype(x: DType, weights: DType = _FLOAT32) -> DType:
    """Choose what elements are multiplied with weights in.

    Returns:
        float32 or, where it would lose something, float64; complex numbers keep theirs.

    Raises:
        DTypeError: The elements are no numbers.
    """
    if x.kind == "O":
        raise DTypeError("strings have no values between them; mode nearest moves them")
    if x.kind == "c":
        return x
    exact = _FLOAT32.itemsize if is_floating(x) else _FLOAT32.itemsize - 1
    is_wide = x.itemsize > exact or weights.itemsize > _FLOAT32.itemsize
    return _FLOAT64 if is_wide else _FLOAT32


def narrowed(builder: Builder, x: Tensor, dtype: DType) -> Tensor:
    """Give what was computed from weights the dtype of the elements back.

    Args:
        builder: Of the program.
        x: Floating or complex.
        dtype: Whole numbers are cut towards zero, after they are moved into its range.
    """
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        high = float(bounds.max)
        x = clipped(
            builder, x, float(bounds.min), high if high <= bounds.max else np.nextafter(high, 0)
        )
    return builder.cast(x, dtype)


def clipped(builder: Builder, x: Tensor, low: float, high: float) -> Tensor:
    """Move what is beyond bounds onto them.

    Args:
        builder: Of the program.
        x: Any.
        low: Least.
        high: Greatest.
    """
    return builder.minimum(builder.maximum(x, low), high)
