"""Sums and greatest elements of windows that slide: few steps, whatever the kernel."""

from math import prod

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.windows import Window
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Region, View, strides_of

_FEW_TAPS = 4
_REDUCTIONS = {Operator.ADD: Operator.SUM, Operator.MAXIMUM: Operator.REDUCE_MAX}


def slid(builder: Builder, operator: Operator, x: Tensor, window: Window) -> Tensor:
    """Join the elements of each window by ADD or MAXIMUM, one axis after the other.

    The tensor is channels-last, padded with what changes nothing. Gives ``(N, *output, C)``.
    """
    shape = (x.shape[0], *window.output, x.shape[-1])
    if not prod(shape):
        return builder.raster([x], shape, [])
    for axis in range(len(window.kernel)):
        x = _slid_axis(builder, operator, x, window, axis)
    return x


def _slid_axis(
    builder: Builder, operator: Operator, x: Tensor, window: Window, number: int
) -> Tensor:
    axis, taps = number + 1, window.kernel[number]
    stride, step, count = (
        window.strides[number], window.dilations[number], window.output[number]
    )  # fmt: skip
    length = window.lengths[number]

    def seen(source: Tensor, first: int, pace: int, size: int) -> Tensor:
        return moves.slice_axis(builder, source, axis, first, first + (size - 1) * pace + 1, pace)

    if taps == 1:
        return seen(x, 0, stride, count)
    if count == 1:
        kept = seen(x, 0, step, taps)
        return builder.reduce(_REDUCTIONS[operator], kept, (axis,))
    if taps > _FEW_TAPS and count * taps <= length:
        return _gathered(builder, operator, x, window, number)
    if (taps - 1) * count <= _doublings(operator, taps) * length and taps <= 4 * _FEW_TAPS:
        total = seen(x, 0, stride, count)
        for tap in range(1, taps):
            total = builder.binary(operator, total, seen(x, tap * step, stride, count))
        return total
    return _doubled(builder, operator, x, window, number)


def _doublings(operator: Operator, taps: int) -> int:
    # a greatest element may be joined twice, a summand may not
    more = taps.bit_count() - 1 if operator is Operator.ADD else taps.bit_count() > 1
    return taps.bit_length() - 1 + more


def _gathered(
    builder: Builder, operator: Operator, x: Tensor, window: Window, number: int
) -> Tensor:
    # windows that hardly overlap: their taps become an axis that is reduced
    axis, own = number + 1, strides_of(x.shape)
    count, taps = window.output[number], window.kernel[number]
    shape = (*x.shape[:axis], count, taps, *x.shape[axis + 1 :])
    strides = (
        *own[:axis],
        own[axis] * window.strides[number],
        own[axis] * window.dilations[number],
        *own[axis + 1 :],
    )
    region = Region(shape, View(0, strides), View(0, strides_of(shape)))
    apart = builder.raster([x], shape, [region])
    return builder.reduce(_REDUCTIONS[operator], apart, (axis + 1,), keep=False)


def _doubled(
    builder: Builder, operator: Operator, x: Tensor, window: Window, number: int
) -> Tensor:
    # windows of 1, 2, 4 ... taps, each joined of two of the size before
    axis, taps = number + 1, window.kernel[number]
    stride, step, count = (
        window.strides[number], window.dilations[number], window.output[number]
    )  # fmt: skip
    joined, width, first = x, 1, 0
    total: Tensor | None = None

    def seen(tap: int) -> Tensor:
        start = tap * step
        return moves.slice_axis(
            builder, joined, axis, start, start + (count - 1) * stride + 1, stride
        )

    while True:
        if operator is Operator.ADD and taps & width:
            total = seen(first) if total is None else builder.add(total, seen(first))
            first += width
        if 2 * width > taps:
            break
        size = joined.shape[axis] - width * step
        joined = builder.binary(
            operator,
            moves.slice_axis(builder, joined, axis, 0, size),
            moves.slice_axis(builder, joined, axis, width * step, width * step + size),
        )
        width *= 2
    if total is not None:
        return total
    return builder.binary(operator, seen(0), seen(taps - width))
