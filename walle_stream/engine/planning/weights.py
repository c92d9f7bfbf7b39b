"""Weights of products of matrices, laid out as BLAS reads them fastest.

BLAS copies the right operand in blocks before it multiplies. Rows whose length is
a multiple of a power of two lie in the same few sets of the cache, and the copy
waits for itself; a line of cache between the rows spreads them (measured with
OpenBLAS on AVX-512: 3 to 11 % of a product with rows of 2 to 12 KiB). The elements,
and what is computed of them, are the same.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Program, Tensor

_GAP_BYTES: Final = 64
_ROW_BYTES: Final = 1 << 10
_SIZE_MIN_BYTES: Final = 1 << 17


def with_gaps(matrix: Array) -> Array:
    """Lay a matrix out with a gap behind each row, where that makes products faster.

    Gives a view of memory of its own, or the array itself.
    """
    if matrix.dtype.name not in {"float32", "float64"} or not matrix.flags.c_contiguous:
        return matrix
    if matrix.ndim != 2 or matrix.nbytes < _SIZE_MIN_BYTES:  # noqa: PLR2004 - a matrix
        return matrix
    rows, columns = matrix.shape
    if columns * matrix.itemsize % _ROW_BYTES:
        return matrix
    memory = np.empty((rows, columns + _GAP_BYTES // matrix.itemsize), matrix.dtype)
    view = memory[:, :columns]
    np.copyto(view, matrix)
    view.flags.writeable = False
    return view


def lay_out_weights(program: Program, kept: Collection[int]) -> Program:
    """Lay out the constants that are right operands of products and nothing else.

    Arrays whose ids are ``kept`` stay: others hold them, too, and a second layout would be memory
    twice.
    """
    others = {*program.outputs}
    for step in program.steps:
        others.update(step.inputs[:1] if step.operator is Operator.MATMUL else step.inputs)
    changed: dict[Tensor, Tensor] = {}
    for step in program.steps:
        if step.operator is not Operator.MATMUL:
            continue
        weights = step.inputs[1]
        data = weights.data
        if data is None or weights in others or weights in changed or id(data) in kept:
            continue
        result = with_gaps(data)
        if result is not data:
            changed[weights] = Tensor(weights.shape, weights.dtype, result, weights.name)
    if not changed:
        return program
    return program.replaced(
        replace(step, inputs=tuple(changed.get(tensor, tensor) for tensor in step.inputs))
        for step in program.steps
    )
