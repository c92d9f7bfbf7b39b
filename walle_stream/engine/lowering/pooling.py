"""Pooling: elementwise steps over views of taps, axis by axis, channels-last."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from walle_stream.engine.backends.kernels import lowest
from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import flat_take, put
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.channels import channels_first, channels_last, padded
from walle_stream.engine.lowering.precision import require_floating, require_numbers, widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.windows import (
    Window,
    spatial,
    spatial_sizes,
    tap_indices,
    window_of,
)
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Shape, View, strides_of, whole
from walle_stream.engine.rules import check_size, check_table
from walle_stream.errors import LoweringError, ShapeError

_FEW_TAPS = 4
_REDUCTIONS = {Operator.ADD: Operator.SUM, Operator.MAXIMUM: Operator.REDUCE_MAX}


def _slid(builder: Builder, operator: Operator, x: Tensor, window: Window) -> Tensor:
    # the elements of each window joined by ADD or MAXIMUM, one axis after the other:
    # ``(N, *output, C)``; the channels-last tensor is padded with the neutral element
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

    def taken(source: Tensor, first: int, pace: int, size: int) -> Tensor:
        return moves.slice_axis(builder, source, axis, first, first + (size - 1) * pace + 1, pace)

    if taps == 1:
        return taken(x, 0, stride, count)
    if count == 1:
        kept = taken(x, 0, step, taps)
        return builder.reduce(_REDUCTIONS[operator], kept, (axis,))
    if taps > _FEW_TAPS and count * taps <= length:
        return _gathered(builder, operator, x, window, number)
    if (taps - 1) * count <= _doublings(operator, taps) * length and taps <= 4 * _FEW_TAPS:
        total = taken(x, 0, stride, count)
        for tap in range(1, taps):
            total = builder.binary(operator, total, taken(x, tap * step, stride, count))
        return total
    return doubled(builder, operator, x, window, number)


def _doublings(operator: Operator, taps: int) -> int:
    # a maximum may read an element twice, a sum may not
    more = taps.bit_count() - 1 if operator is Operator.ADD else taps.bit_count() > 1
    return taps.bit_length() - 1 + more


def _gathered(
    builder: Builder, operator: Operator, x: Tensor, window: Window, number: int
) -> Tensor:
    # windows that hardly overlap: their taps become an axis, which is reduced
    axis, own = number + 1, strides_of(x.shape)
    count, taps = window.output[number], window.kernel[number]
    shape = (*x.shape[:axis], count, taps, *x.shape[axis + 1 :])
    strides = (
        *own[:axis],
        own[axis] * window.strides[number],
        own[axis] * window.dilations[number],
        *own[axis + 1 :],
    )
    apart = builder.raster([x], shape, [whole(shape, View(0, strides))])
    return builder.reduce(_REDUCTIONS[operator], apart, (axis + 1,), keep=False)


def doubled(builder: Builder, operator: Operator, x: Tensor, window: Window, number: int) -> Tensor:
    """Join windows along spatial axis ``number`` from those of 1, 2, 4 ... taps; see ``_slid``."""
    axis, taps = number + 1, window.kernel[number]
    stride, step, count = (
        window.strides[number], window.dilations[number], window.output[number]
    )  # fmt: skip
    joined, width, first = x, 1, 0
    total: Tensor | None = None

    def taken(tap: int) -> Tensor:
        start = tap * step
        return moves.slice_axis(
            builder, joined, axis, start, start + (count - 1) * stride + 1, stride
        )

    while True:
        if operator is Operator.ADD and taps & width:
            total = taken(first) if total is None else builder.add(total, taken(first))
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
    return builder.binary(operator, taken(0), taken(taps - width))


def _window(call: Call, x: Tensor) -> Window:
    sizes, kernel = spatial_sizes(x), call.list("kernel_shape")
    if kernel is None:
        raise LoweringError("attribute 'kernel_shape' is missing")
    return window_of(call, sizes, kernel)


@lowers("MaxPool", kind=Kind.COMPOSITE)
def _max_pool(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    window, fill = _window(call, x), lowest(require_numbers(x).dtype)
    if call.wants(1):
        return _max_pool_with_indices(call, x, window, fill)
    border = padded(builder, channels_last(builder, x), window, fill)
    return channels_first(builder, _slid(builder, Operator.MAXIMUM, border, window))


def _max_pool_with_indices(call: Call, x: Tensor, window: Window, fill: Any) -> Result:
    builder, (n, channels) = call.builder, x.shape[:2]
    shape = (n, channels, *window.output)
    order = call.number("storage_order", 0)
    if order not in {0, 1}:
        raise LoweringError(f"storage_order {order} is not 0 or 1")
    if 0 in shape:
        empty = builder.raster([x], shape, [])
        return empty, builder.cast(empty, np.int64)
    last = channels_last(builder, x)
    border = padded(builder, last, window, fill)
    windows = _windows_of_planes(builder, border, window)
    result = builder.emit(Operator.ARG_MAX, windows, axis=2)
    # the position of each tap of each window in its plane; a tap in the padding counts as the first
    # real tap, which is also a maximum wherever the padding is
    table = _tap_places(window, transposed=bool(order))
    rows = np.arange(prod(window.output), dtype=np.int64) * window.taps
    flat = builder.add(builder.reshape(result, (n * channels, len(rows))), builder.constant(rows))
    positions = flat_take(builder, builder.constant(table), flat)
    planes = np.arange(n * channels, dtype=np.int64).reshape(-1, 1) * prod(window.sizes)
    indices = builder.add(positions, builder.constant(planes))
    values = builder.max(windows, (2,))
    return builder.reshape(values, shape), builder.reshape(indices, shape)


def _windows_of_planes(builder: Builder, x: Tensor, window: Window) -> Tensor:
    # (N * C, positions, taps) of a channels-last tensor
    own = strides_of(x.shape)
    pace = [s * step for s, step in zip(window.strides, own[1:-1], strict=True)]
    taps = [d * step for d, step in zip(window.dilations, own[1:-1], strict=True)]
    size = (x.shape[0], x.shape[-1], *window.output, *window.kernel)
    source = View(0, (own[0], 1, *pace, *taps))
    shape = (x.shape[0] * x.shape[-1], prod(window.output), window.taps)
    return builder.raster([x], shape, [whole(size, source)])


def _tap_places(window: Window, *, transposed: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    rank = len(window.sizes)
    check_table((*window.output, *window.kernel), "the taps")
    steps = strides_of(window.sizes[::-1])[::-1] if transposed else strides_of(window.sizes)
    total, inside = np.zeros((), np.int64), np.ones((), np.bool_)
    for axis, step in enumerate(steps):
        at = tap_indices(window, axis)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = at.shape
        total = total + (at * step).reshape(shape)
        inside = inside & ((at >= 0) & (at < window.sizes[axis])).reshape(shape)
    flat, real = total.reshape(-1, window.taps), inside.reshape(-1, window.taps)
    first = np.take_along_axis(flat, real.argmax(axis=1)[:, None], axis=1)
    return np.where(real, flat, np.clip(first, 0, max(prod(window.sizes) - 1, 0)))


@lowers("AveragePool", kind=Kind.COMPOSITE)
def _average_pool(call: Call) -> Result:
    x, builder = require_floating(call.tensor(0)), call.builder
    window = _window(call, x)
    border = padded(builder, channels_last(builder, widened(builder, x)), window, 0)
    total = _slid(builder, Operator.ADD, border, window)
    counts = _counts(window, includes_pads=bool(call.number("count_include_pad", 0)))
    if counts.size and (counts == counts.flat[0]).all():
        counts = counts.flat[0]
    result = builder.div(total, builder.constant(counts.astype(total.dtype)))
    return channels_first(builder, builder.cast(result, x.dtype))


def _counts(window: Window, *, includes_pads: bool) -> np.ndarray[Any, Any]:
    # (*output, 1): the number of taps of each window outside the padding, at least one
    counts = np.ones((), np.int64)
    for axis in range(len(window.sizes)):
        at, low, high = tap_indices(window, axis), 0, window.sizes[axis]
        if includes_pads:
            low, high = -window.before[axis], high + window.after[axis]
        counts = np.multiply.outer(counts, ((at >= low) & (at < high)).sum(axis=1))
    return np.maximum(counts, 1).reshape(*window.output, 1)


@lowers("LpPool", kind=Kind.COMPOSITE)
def _lp_pool(call: Call) -> Result:
    x, builder = require_floating(call.tensor(0)), call.builder
    window, power = _window(call, x), _power(call)
    border = padded(builder, channels_last(builder, widened(builder, x)), window, 0)
    result = lp_norm(
        builder, border, power, lambda powers: _slid(builder, Operator.ADD, powers, window)
    )
    return channels_first(builder, builder.cast(result, x.dtype))


def _power(call: Call) -> float:
    power = call.real("p", 2)
    if not power > 0:
        raise LoweringError(f"p {power} is not positive")
    return power


def lp_norm(builder: Builder, x: Tensor, power: float, add: Callable[[Tensor], Tensor]) -> Tensor:
    """Return norms of an order; ``add`` sums the powers of the elements of each norm."""
    if power == 2:  # noqa: PLR2004
        return builder.sqrt(add(builder.mul(x, x)))
    size = builder.abs(x)
    if power == 1:
        return add(size)
    raised = builder.pow(size, power)
    return builder.pow(add(raised), 1 / power)


@lowers("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool", kind=Kind.COMPOSITE)
def _global_pool(call: Call) -> Result:
    x, builder, operator = require_floating(call.tensor(0)), call.builder, call.node.operator
    axes = range(1, 1 + len(spatial_sizes(x)))
    last = channels_last(builder, x if operator == "GlobalMaxPool" else widened(builder, x))
    if operator == "GlobalMaxPool":
        result = builder.max(last, axes)
    elif operator == "GlobalAveragePool":
        result = builder.mean(last, axes)
    else:
        result = lp_norm(builder, last, _power(call), lambda powers: builder.sum(powers, axes))
    return channels_first(builder, builder.cast(result, x.dtype))


@lowers("MaxUnpool", kind=Kind.COMPOSITE)
def _max_unpool(call: Call) -> Result:
    x, indices, builder = call.tensor(0), call.tensor(1), call.builder
    sizes, kernel = spatial_sizes(x), call.list("kernel_shape")
    rank = len(sizes)
    if kernel is None or len(kernel) != rank or indices.shape != x.shape:
        raise ShapeError(
            f"kernel {list(kernel or ())} and indices {list(indices.shape)} for {list(x.shape)}"
        )
    strides = spatial(call, "strides", rank, 1, least=1)
    pads = spatial(call, "pads", 2 * rank, 0, least=0)
    if call.has(2):
        pads = (0,) * (2 * rank)
    pooled: Shape = (*x.shape[:2], *(
        (n - 1) * s + k - front - back
        for n, s, k, front, back in zip(
            sizes, strides, kernel, pads[:rank], pads[rank:], strict=True
        )
    ))  # fmt: skip
    check_size(pooled, "the output")
    zeros = builder.constant(np.broadcast_to(np.zeros((), x.dtype), (prod(pooled), 1)))
    result = builder.reshape(put(builder, zeros, builder.cast(indices, np.int64), x), pooled)
    wanted = call.numbers(2)
    if wanted is None:
        return result
    if len(wanted) == rank:
        wanted = (*pooled[:2], *wanted)
    if len(wanted) != x.rank or wanted[:2] != pooled[:2]:
        raise ShapeError(f"output_shape {list(wanted)} for shape {list(x.shape)}")
    # the indices belong to the smallest possible input of the pool; a larger output is padded
    more = [a - b for a, b in zip(wanted, pooled, strict=True)]
    return moves.pad(builder, result, (0,) * x.rank, more)
