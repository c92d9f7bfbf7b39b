"""Dtypes of numpy and of others, and arrays in this machine's order of bytes."""

from typing import Final

import numpy as np

from walle_stream.engine.program import Array, DType

_FOREIGN: Final = 2
"""What numpy says of a dtype that another package has added: by its own words ``isbuiltin``."""


def is_foreign(dtype: DType) -> bool:
    """Whether a dtype is one of ``ml_dtypes``, which numpy does not compute with as with its own.

    Args:
        dtype: Any. numpy's own in a stated byte order are its own, though no builtin objects.

    Returns:
        True for bfloat16, float8, float4, int4, int2 and their like.
    """
    return dtype.isbuiltin == _FOREIGN


def native(array: Array) -> Array:
    """Give an array the dtype object that numpy itself makes of its name.

    Args:
        array: Any; of a stated byte order, perhaps.

    Returns:
        The same elements in this machine's order: a view, or a copy where that is another.
    """
    dtype = array.dtype
    if dtype.isbuiltin or dtype.hasobject or dtype.fields:
        return array
    own = np.dtype(dtype.name) if dtype.kind in "biufc" else dtype.newbyteorder("=")
    return array.view(own) if dtype.isnative else array.astype(own)
