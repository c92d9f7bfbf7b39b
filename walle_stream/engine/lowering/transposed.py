"""ConvTranspose and Col2Im: columns of windows are added to images.

A transposed convolution is either a matrix product whose columns are added, or a convolution.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.channels import channels_first, channels_last
from walle_stream.engine.lowering.convolution import biased, convolved
from walle_stream.engine.lowering.precision import require_floating, widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.windows import AUTO_PADS, Window, placed, spatial, spatial_sizes
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of
from walle_stream.engine.rules import check_size
from walle_stream.errors import ShapeError


@dataclass(frozen=True, slots=True)
class Columns:
    """Layout of the columns and of the image; strides are in elements."""

    outer: Region
    """Axes outside the window, from the columns to the image; both views start at 0."""
    positions: Shape
    """Source strides of the positions of the window, one per spatial axis."""
    kernel: Shape
    """Source strides of the taps of the window."""
    image: Shape
    """Destination strides, one per spatial axis."""


def fold(builder: Builder, x: Tensor, shape: Shape, window: Window, columns: Columns) -> Tensor:
    """Add columns to an image of the same dtype; overlapping columns are summed.

    Elements of the window beyond the image are left out.
    """
    if not x.size:
        return builder.raster([x], shape, [], 0)
    regions = tuple(_regions(window, columns))
    fill = None if x.dtype.kind == "O" else 0
    return builder.raster([x], shape, regions, fill, accumulate=overlaps(window))


def overlaps(window: Window) -> bool:
    """Whether an element belongs to two windows, or to two taps."""
    return any(
        k > 1 and n > 1 and (k - 1) * d >= s and (n - 1) * s >= d
        for k, n, s, d in zip(
            window.kernel, window.output, window.strides, window.dilations, strict=True
        )
    )


def _regions(window: Window, columns: Columns) -> Iterator[Region]:
    # taps and positions have the same role in an address: there is a region for each of the fewer,
    # which spans the others
    outer = columns.outer
    taps = (window.kernel, window.dilations, columns.kernel)
    positions = (window.output, window.strides, columns.positions)
    first, second = (taps, positions) if window.taps <= prod(window.output) else (positions, taps)
    fixed = list(zip(*first, strict=True))
    free = list(zip(*second, strict=True))
    for number in product(*(range(count) for count, _, _ in fixed)):
        size, source, target = [], [], []
        start = goal = 0
        for axis, at in enumerate(number):
            _, step, stride = fixed[axis]
            count, pace, own = free[axis]
            shift = at * step - window.before[axis]
            low = max(0, -(shift // pace))
            high = min(count, (window.sizes[axis] - 1 - shift) // pace + 1)
            size.append(max(0, high - low))
            start += at * stride + low * own
            goal += (shift + low * pace) * columns.image[axis]
            source.append(own)
            target.append(pace * columns.image[axis])
        yield Region(
            (*outer.size, *size),
            View(start, (*outer.source.strides, *source)),
            View(goal, (*outer.destination.strides, *target)),
        )


@lowers("Col2Im", kind=Kind.TRANSFORM)
def _col2im(call: Call) -> Result:
    x, image, block = call.tensor(0), call.numbers(1) or (), call.numbers(2) or ()
    rank = len(image)
    window = placed(
        image,
        block,
        spatial(call, "strides", rank, 1, least=1),
        spatial(call, "dilations", rank, 1, least=1),
        spatial(call, "pads", 2 * rank, 0, least=0),
    )
    if x.rank != 3 or x.shape[1] % window.taps or x.shape[2] != prod(window.output):  # noqa: PLR2004
        raise ShapeError(
            f"columns of shape {list(x.shape)} for blocks {list(block)} at {list(window.output)}"
            " positions"
        )
    n, channels = x.shape[0], x.shape[1] // window.taps
    shape = (n, channels, *image)
    own = strides_of((n, channels, *block, *window.output))
    target = strides_of(shape)
    columns = Columns(
        Region((n, channels), View(0, own[:2]), View(0, target[:2])),
        own[2 + rank :],
        own[2 : 2 + rank],
        target[2:],
    )
    return fold(call.builder, x, shape, window, columns)


_MACS_PER_MOVE = 32
"""Multiply-adds of a matrix product that take as long as moving one element."""


@lowers("ConvTranspose", kind=Kind.COMPOSITE)
def _conv_transpose(call: Call) -> Result:
    x, w = require_floating(call.tensor(0)), call.tensor(1)
    builder, group = call.builder, call.number("group", 1)
    sizes = spatial_sizes(x)
    if w.rank != x.rank or group < 1 or x.shape[1] % group or w.shape[0] != x.shape[1]:
        raise ShapeError(
            f"weights of shape {list(w.shape)} in {group} groups for shape {list(x.shape)}"
        )
    if call.list("kernel_shape") not in {None, w.shape[2:]}:
        raise ShapeError(f"kernel_shape {call.list('kernel_shape')} of weights {list(w.shape)}")
    window = _window(call, sizes, w.shape[2:])
    check_size((x.shape[0], w.shape[1] * group, *window.sizes), "the output")
    last = channels_last(builder, x)
    if not x.size or not w.size or 0 in window.sizes:
        empty = builder.raster([last], (x.shape[0], *window.sizes, w.shape[1] * group), [], 0)
        return channels_first(builder, biased(builder, empty, call.optional(2)))
    gathers = _gathered_work(window, w.shape) < _scattered_work(window, w.shape, group)
    result = (_gathered if gathers else _scattered)(builder, last, w, window, group)
    return channels_first(builder, biased(builder, result, call.optional(2)))


def _window(call: Call, sizes: Shape, kernel: Shape) -> Window:
    # the window slides over the output, and its positions are the input's elements
    rank = len(sizes)
    strides = spatial(call, "strides", rank, 1, least=1)
    dilations = spatial(call, "dilations", rank, 1, least=1)
    extra = spatial(call, "output_padding", rank, 0, least=0)
    mode = call.choice("auto_pad", AUTO_PADS, "NOTSET")
    wanted = call.list("output_shape")
    if wanted is not None and len(wanted) == rank + 2:
        wanted = wanted[2:]
    if min(kernel) < 1:
        raise ShapeError(f"a kernel of shape {list(kernel)}")
    full = [
        s * (n - 1) + (k - 1) * d + 1 + more if n else 0
        for n, s, k, d, more in zip(sizes, strides, kernel, dilations, extra, strict=True)
    ]
    if wanted is None and mode.startswith("SAME"):
        wanted = tuple(n * s for n, s in zip(sizes, strides, strict=True))
    if wanted is not None:
        if len(wanted) != rank or min(wanted, default=0) < 0:
            raise ShapeError(f"output_shape {list(wanted)} for {rank} spatial axes")
        spare = [max(0, a - b) for a, b in zip(full, wanted, strict=True)]
        # an odd element goes to the end for SAME_UPPER, and to the front otherwise
        before = tuple(n // 2 if mode == "SAME_UPPER" else n - n // 2 for n in spare)
    else:
        pads = spatial(call, "pads", 2 * rank, 0, least=0) if mode == "NOTSET" else (0,) * 2 * rank
        before = pads[:rank]
        wanted = tuple(
            a - b - c if a else 0 for a, b, c in zip(full, before, pads[rank:], strict=True)
        )
        if min(wanted, default=0) < 0:
            raise ShapeError(f"pads {list(pads)} leave nothing of an output of shape {full}")
    return Window(wanted, kernel, strides, dilations, before, (0,) * rank, sizes)


def _scattered_work(window: Window, weights: Shape, group: int) -> float:
    channels, depth = weights[0], weights[1] * group
    cells = prod(window.output) * window.taps * depth
    return cells * (channels / group / _MACS_PER_MOVE + (2 if overlaps(window) else 1))


def _gathered_work(window: Window, weights: Shape) -> float:
    channels, depth = weights[0], weights[1]
    return prod(window.sizes) * window.taps * channels * (depth / _MACS_PER_MOVE + 1)


def _scattered(builder: Builder, x: Tensor, w: Tensor, window: Window, group: int) -> Tensor:
    # multiplies (group, N * positions, C / group) by (group, C / group, taps * M / group)
    n, rank, channels, depth = x.shape[0], len(window.output), w.shape[0], w.shape[1]
    rows = builder.reshape(x, (n * prod(window.output), group, channels // group))
    rows = moves.transpose(builder, rows, (1, 0, 2))
    split = builder.reshape(w, (group, channels // group, depth, window.taps))
    matrix = builder.reshape(
        moves.transpose(builder, split, (0, 1, 3, 2)),
        (group, channels // group, window.taps * depth),
    )
    if group == 1:
        rows, matrix = (builder.reshape(tensor, tensor.shape[1:]) for tensor in (rows, matrix))
    is_summed = overlaps(window)
    if is_summed:
        rows, matrix = widened(builder, rows), widened(builder, matrix)
    result = builder.matmul(rows, matrix)
    shape = (n, *window.sizes, group * depth)
    own = strides_of((group, n, *window.output, *window.kernel, depth))
    target = strides_of(shape)
    columns = Columns(
        Region((group, n, depth), View(0, (*own[:2], 1)), View(0, (depth, target[0], 1))),
        own[2 : 2 + rank],
        own[2 + rank : 2 + 2 * rank],
        target[1:-1],
    )
    return builder.cast(fold(builder, result, shape, window, columns), x.dtype)


def _gathered(builder: Builder, x: Tensor, w: Tensor, window: Window, group: int) -> Tensor:
    # convolves the input's elements, placed strides apart, with the mirrored kernel
    n, channels = x.shape[0], x.shape[-1]
    rank, depth = len(window.output), w.shape[1]
    front = [a - b - 1 for a, b in zip(window.reach, window.before, strict=True)]
    lengths = tuple(a + b - 1 for a, b in zip(window.sizes, window.reach, strict=True))
    shape, own = (n, *lengths, channels), strides_of(x.shape)
    target = strides_of(shape)
    low = [max(0, -(at // s)) for at, s in zip(front, window.strides, strict=True)]
    size = [
        max(0, min(count, (length - 1 - at) // s + 1) - first)
        for count, length, at, s, first in zip(
            window.output, lengths, front, window.strides, low, strict=True
        )
    ]
    inner = zip(own[1:-1], target[1:-1], front, low, window.strides, strict=True)
    start, goal, steps = 0, 0, []
    for source, step, at, first, s in inner:
        start, goal = start + first * source, goal + (at + first * s) * step
        steps.append(s * step)
    region = Region((n, *size, channels), View(start, own), View(goal, (target[0], *steps, 1)))
    spread = builder.raster([x], shape, [region], 0)
    split = builder.reshape(w, (group, channels // group, depth, *window.kernel))
    swapped = moves.transpose(builder, split, (0, 2, 1, *range(3, 3 + rank)))
    mirrored = moves.flip(builder, swapped, range(3, 3 + rank))
    weights = builder.reshape(mirrored, (group * depth, channels // group, *window.kernel))
    ones, none = (1,) * rank, (0,) * rank
    slid = Window(lengths, window.kernel, ones, window.dilations, none, none, window.sizes)
    return convolved(builder, spread, weights, slid, group)
