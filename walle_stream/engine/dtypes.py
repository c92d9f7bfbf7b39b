"""Dtypes of numpy and of others, and arrays in this machine's order of bytes."""

from typing import Final

import numpy as np

from walle_stream.engine.program import Array, DType

_FOREIGN: Final = 2
"""What numpy says of a dtype that another package has added: by its own words ``isbuiltin``."""


def is_foreign(dtype: DType) -> bool:
    """Whether a dtype is one of ``ml_dtypes`` (bfloat16, float8, int4 ...), not numpy's own.

    Those of numpy in a stated byte order are its own, though no builtin objects.
    """
    return dtype.isbuiltin == _FOREIGN


def native(array: Array) -> Array:
    """Give an array the dtype object that numpy itself makes of its name.

    It is a view in this machine's order of bytes, or a copy where that is another.
    """
    dtype = array.dtype
    if dtype.isbuiltin or dtype.hasobject or dtype.fields:
        return array
    own = np.dtype(dtype.name) if dtype.kind in "biufc" else dtype.newbyteorder("=")
    return array.view(own) if dtype.isnative else array.astype(own)
