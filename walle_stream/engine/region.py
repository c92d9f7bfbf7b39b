"""Regions and views: the data of the one raster operator.

A raster fills an output from its inputs, region by region. A region is a box of coordinates. A
view maps each coordinate to an address, ``offset + sum(stride[i] * x[i])``, in elements of a
row-major tensor. A stride may be 0 (read one element many times) or negative (read backwards).
Sources: Walle 2022, geometric computing; MNN core/TensorUtils.hpp, without its limit of three axes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from walle_stream.errors import ShapeError

type Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """Addresses of a box of coordinates."""

    offset: int
    """Address of coordinate 0, in elements."""
    strides: Shape
    """One stride per axis of the region, in elements."""

    def bounds(self, size: Shape) -> tuple[int, int]:
        """Return the lowest and the highest address, both inclusive; ``size`` has no zeros."""
        low = high = self.offset
        for count, stride in zip(size, self.strides, strict=True):
            if stride < 0:
                low += stride * (count - 1)
            else:
                high += stride * (count - 1)
        return low, high


@dataclass(frozen=True, slots=True)
class Region:
    """``output[destination(x)] = inputs[source_index][source(x)]`` for each x below ``size``."""

    size: Shape
    source: View
    destination: View
    input: int = 0

    @property
    def count(self) -> int:
        """Number of moved elements."""
        return prod(self.size)


def strides_of(shape: Sequence[int]) -> Shape:
    """Return the strides of a row-major tensor, in elements."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def whole(shape: Sequence[int], source: View) -> Region:
    """Make a region that fills an output of a shape from the first input, in row-major order."""
    return Region(tuple(shape), source, View(0, strides_of(shape)))


def simplified(region: Region) -> Region:
    """Drop axes of size 1, and join axes that both views step through as one; the moves stay."""
    axes: list[tuple[int, int, int]] = []
    for count, source, target in zip(
        region.size, region.source.strides, region.destination.strides, strict=True
    ):
        if count == 1:
            continue
        if axes and axes[-1][1] == source * count and axes[-1][2] == target * count:
            axes[-1] = (axes[-1][0] * count, source, target)
        else:
            axes.append((count, source, target))
    return Region(
        tuple(axis[0] for axis in axes),
        View(region.source.offset, tuple(axis[1] for axis in axes)),
        View(region.destination.offset, tuple(axis[2] for axis in axes)),
        region.input,
    )


def _is_injective(size: Shape, view: View) -> bool:
    # refuses any view whose axes interleave, even if its addresses differ
    reach = 0
    axes = sorted(
        (abs(stride), count) for count, stride in zip(size, view.strides, strict=True) if count > 1
    )
    for stride, count in axes:
        if stride <= reach:
            return False
        reach += stride * (count - 1)
    return True


def validate_regions(regions: Iterable[Region], inputs: Sequence[Shape], output: Shape) -> None:
    """Refuse regions that reach beyond a tensor or write an element twice.

    Raises:
        ShapeError: A region has a fault; the message names the first one.
    """
    for region in regions:
        if not 0 <= region.input < len(inputs):
            raise ShapeError(f"{region} reads input {region.input} of {len(inputs)}")
        if not len(region.size) == len(region.source.strides) == len(region.destination.strides):
            raise ShapeError(f"{region}: size and strides differ in their number of axes")
        if min(region.size, default=1) < 0:
            raise ShapeError(f"{region} has a negative size")
        if not region.count:
            continue
        for view, shape in ((region.source, inputs[region.input]), (region.destination, output)):
            low, high = view.bounds(region.size)
            if low < 0 or high >= prod(shape):
                raise ShapeError(f"{region} reaches [{low}, {high}] of a tensor of shape {shape}")
        if not _is_injective(region.size, region.destination):
            raise ShapeError(f"{region} writes an element twice")
