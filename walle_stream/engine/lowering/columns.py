"""Columns back to images: what each tap of each window holds, added up at its place."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.windows import Window, placed, spatial
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of
from walle_stream.errors import ShapeError


class OuterAxis(NamedTuple):
    """Its size, and its strides in the columns and in the image."""

    size: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Where columns lie, and where the image does; strides in elements."""

    outer: tuple[OuterAxis, ...]
    """Axes that are no spatial ones."""
    places: Shape
    """Source strides of the places of the window, one a spatial axis."""
    kernel: Shape
    """Source strides of its taps."""
    image: Shape
    """Destination strides."""


def fold(builder: Builder, x: Tensor, shape: Shape, window: Window, columns: Columns) -> Tensor:
    """Add up columns where they overlap, to an image of their dtype.

    What the window sees beyond the image is left out.
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
    # taps and places are alike in an address: a region stands for one of the fewer, and spans
    # the other
    taps = (window.kernel, window.dilations, columns.kernel)
    places = (window.output, window.strides, columns.places)
    first, second = (taps, places) if window.taps <= prod(window.output) else (places, taps)
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
            (*(each.size for each in columns.outer), *size),
            View(start, (*(each.source for each in columns.outer), *source)),
            View(goal, (*(each.target for each in columns.outer), *target)),
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
            " places"
        )
    n, channels = x.shape[0], x.shape[1] // window.taps
    shape = (n, channels, *image)
    own = strides_of((n, channels, *block, *window.output))
    target = strides_of(shape)
    columns = Columns(
        (OuterAxis(n, own[0], target[0]), OuterAxis(channels, own[1], target[1])),
        own[2 + rank :],
        own[2 : 2 + rank],
        target[2:],
    )
    return fold(call.builder, x, shape, window, columns)
