"""Folds scales and shifts of columns into the constants of the preceding product.

``(x @ w) * s`` is ``x @ (w * s)`` if ``s`` has one constant per column, and two successive added
constants are one. A batch normalisation after a convolution thus costs no more than a bias.
"""

from collections.abc import Mapping

import numpy as np

from walle_stream.engine.derived import SHARED
from walle_stream.engine.operators import Operator
from walle_stream.engine.passes.reading import readers, rewritten, view_of
from walle_stream.engine.program import Array, Program, Step, Tensor
from walle_stream.engine.region import View, whole


def fold_scales(program: Program) -> Program:
    """Fold constants of columns into products and into each other; equal up to rounding."""
    counts = readers(program)

    def folded(step: Step, maker_of: Mapping[Tensor, Step]) -> list[Step] | None:
        better = _folded(step, maker_of, counts)
        counts.update(tensor for new in better or () for tensor in new.inputs)
        return better

    return rewritten(program, folded)


def _folded(
    step: Step, maker_of: Mapping[Tensor, Step], counts: Mapping[Tensor, int]
) -> list[Step] | None:
    if step.operator not in {Operator.MUL, Operator.ADD} or step.output.dtype.kind != "f":
        return None
    for value, other in (step.inputs, step.inputs[::-1]):
        row, inner = row_of(other, maker_of), maker_of.get(value)
        if row is None or inner is None or counts.get(value) != 1:
            continue
        if step.operator is Operator.MUL and inner.operator is Operator.MATMUL:
            return _scaled(step, inner, row)
        if inner.operator is Operator.ADD:
            result = _through_add(step, inner, row, maker_of)
            if result is not None:
                return result
    return None


def row_of(tensor: Tensor, maker_of: Mapping[Tensor, Step]) -> Array | None:
    """Return the constant of each column ``(columns,)`` of a matrix with equal rows, or None."""
    if tensor.dtype.kind != "f" or not tensor.has_shape or tensor.rank != 2:  # noqa: PLR2004
        return None
    maker = maker_of.get(tensor)
    if maker is None:
        data = tensor.data
        return None if data is None or data.shape[0] != 1 else data[0]
    view = view_of(maker)
    base = maker.inputs[0].data if maker.inputs else None
    if view is None or base is None or (view.strides[0] and tensor.shape[0] > 1):
        return None
    offset, step, count = view.offset, view.strides[1], tensor.shape[1]
    return SHARED.of(
        ("row", offset, step, count), [base],
        lambda: base.reshape(-1)[offset + step * np.arange(count)],
    )  # fmt: skip


def _scaled(step: Step, product: Step, row: Array) -> list[Step] | None:
    left, right = product.inputs
    if right.data is None or right.rank != 2:  # noqa: PLR2004  # a matrix
        return None
    known = right.data
    data = SHARED.of("scaled", [known, row], lambda: np.asarray(known * row))
    weights = Tensor(right.shape, right.dtype, data, right.name)
    return [Step(Operator.MATMUL, (left, weights), step.outputs, {}, product.origin)]


def _through_add(
    step: Step, inner: Step, row: Array, maker_of: Mapping[Tensor, Step]
) -> list[Step] | None:
    for value, other in (inner.inputs, inner.inputs[::-1]):
        shift = row_of(other, maker_of)
        if shift is None or value.data is not None:
            continue
        if step.operator is Operator.ADD:
            spread, tensor = _spread(shift + row, step)
            return [spread, Step(Operator.ADD, (value, tensor), step.outputs, {}, step.origin)]
        scale, scales = _spread(row, step)
        move, shifts = _spread(shift * row, step)
        product = Tensor(value.shape, value.dtype)
        return [
            scale,
            Step(Operator.MUL, (value, scales), (product,), {}, step.origin),
            move,
            Step(Operator.ADD, (product, shifts), step.outputs, {}, step.origin),
        ]
    return None


def _spread(row: Array, step: Step) -> tuple[Step, Tensor]:
    shape, dtype = step.output.shape, step.output.dtype
    source = Tensor(row.shape, dtype, np.ascontiguousarray(row, dtype))
    output = Tensor(shape, dtype, np.broadcast_to(np.asarray(source.data), shape))
    return Step.raster(source, output, whole(shape, View(0, (0, 1))), step.origin), output
