"""Composition of regions: a region reads the source of an earlier raster directly.

An outer region that reads a tensor which an inner region wrote can read the inner region's source
instead, wherever their boxes meet. The strides of the inner region form a mixed radix, in which
addresses have digits. Each axis of the outer region moves along these digits. The part of its box
inside the inner region is again one box, or a few. This goes beyond MNN's fuseRegion: several
regions, partial cover, repeated and reversed axes, any number of axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from walle_stream.engine.region import Region, View

PIECES_MAX: Final = 64
"""Largest number of regions from one pair; more would cost more than the saved tensor."""


@dataclass(slots=True)
class _Axis:
    size: int
    read: int
    """Stride in the intermediate tensor."""
    write: int
    digits: list[int]
    """Digits of ``read`` in the radix."""


class _Radix:
    """Digits of an address: the inner region's write strides, largest first."""

    def __init__(self, axes: list[tuple[int, int, int]]) -> None:
        # (size, read stride, write stride), sorted by write stride
        self.sizes = [axis[0] for axis in axes]
        self.reads = [axis[1] for axis in axes]
        self.writes = [axis[2] for axis in axes]

    def is_nested(self) -> bool:
        pairs = zip(self.writes, self.writes[1:], self.sizes[1:], strict=False)
        return all(high % low == 0 and low * size <= high for high, low, size in pairs)

    def holds(self, base: Sequence[int]) -> bool:
        """Whether the region's box, from its first address, never carries into a higher digit."""
        limits = [self.limit(digit) for digit in range(len(base))]
        return all(
            limit is None or value + size <= limit
            for limit, value, size in zip(limits, base, self.sizes, strict=True)
        )

    def limit(self, digit: int) -> int | None:
        """Number of values of a digit; None for the first digit, which is unbounded."""
        return self.writes[digit - 1] // self.writes[digit] if digit else None

    def digits(self, address: int) -> tuple[list[int], int]:
        results = []
        for write in self.writes:
            results.append(address // write)
            address %= write
        return results, address


def compose(outer: Region, inner: Region) -> list[Region] | None:
    """Read the inner region's source in place of the tensor that it wrote.

    Returns regions, with the inner region's ``input``, for the elements of the outer region that
    the inner one wrote. There are none if the regions do not meet. Returns None if the elements do
    not form a few boxes.
    """
    if not inner.count or not outer.count:
        return []
    inner_axes, source, origin = _upright(inner, by_write=True)
    radix = _Radix(sorted(inner_axes, key=lambda axis: -axis[2]))
    base, rest = radix.digits(origin)
    if not radix.is_nested() or not radix.holds(base):
        return None
    axes, read, write = _outer_axes(outer, radix)
    start, remainder = radix.digits(read)
    if axes is None or not _stays(axes, start, radix):
        return None
    if remainder != rest:
        return []
    offsets = [mine - theirs for mine, theirs in zip(start, base, strict=True)]
    boxes: list[tuple[list[_Axis], list[int], int]] = []
    if not _clip(axes, offsets, write, radix, boxes):
        return None
    return [_region(box, radix, source, inner.input) for box in boxes]


def _upright(region: Region, *, by_write: bool) -> tuple[list[tuple[int, int, int]], int, int]:
    """Return size, read and write stride of each axis, and the first read and write address.

    Axes whose write strides (``by_write``) or read strides are negative are reversed. Axes of one
    element are dropped.
    """
    source, target = region.source.offset, region.destination.offset
    axes = []
    for size, read, write in zip(
        region.size, region.source.strides, region.destination.strides, strict=True
    ):
        if size == 1:
            continue
        sign = -1 if (write if by_write else read) < 0 else 1
        if sign < 0:
            source += read * (size - 1)
            target += write * (size - 1)
        axes.append((size, sign * read, sign * write))
    return axes, source, target


def _outer_axes(outer: Region, radix: _Radix) -> tuple[list[_Axis] | None, int, int]:
    upright, offset, target = _upright(outer, by_write=False)
    axes: list[_Axis] = []
    for axis in upright:
        split = _split(*axis, radix)
        if split is None:
            return None, 0, 0
        axes += split
    return axes, offset, target


def _split(size: int, read: int, write: int, radix: _Radix) -> list[_Axis] | None:
    """Split an axis where it carries from one digit to the next; None if that is impossible."""
    axes: list[_Axis] = []
    while True:
        digits, rest = radix.digits(read)
        if rest:
            return None
        used = [digit for digit, value in enumerate(digits) if value]
        limit = radix.limit(used[-1]) if used else None
        if limit is None or digits[used[-1]] * (size - 1) < limit:
            return [_Axis(size, read, write, digits), *axes]
        high = radix.writes[used[-1] - 1]
        if len(used) > 1 or high % read or size % (high // read):
            return None
        count = high // read
        axes.insert(0, _Axis(count, read, write, digits))
        size, read, write = size // count, high, write * count


def _stays(axes: Sequence[_Axis], start: Sequence[int], radix: _Radix) -> bool:
    for digit, value in enumerate(start):
        limit = radix.limit(digit)
        top = value + sum(axis.digits[digit] * (axis.size - 1) for axis in axes)
        if limit is not None and top >= limit:
            return False
    return True


def _clip(
    axes: list[_Axis],
    offsets: list[int],
    write: int,
    radix: _Radix,
    boxes: list[tuple[list[_Axis], list[int], int]],
) -> bool:
    """Collect the boxes inside the inner region; False if there are too many."""
    for digit, size in enumerate(radix.sizes):
        low = offsets[digit]
        high = low + sum(axis.digits[digit] * (axis.size - 1) for axis in axes)
        if low >= 0 and high < size:
            continue
        if high < 0 or low >= size:
            return True
        moving = [axis for axis in axes if axis.digits[digit] and axis.size > 1]
        spans = {
            id(axis): _spans(axis.digits[digit], axis.size, low, high, size) for axis in moving
        }
        axis = min(moving, key=lambda axis: len(spans[id(axis)]))
        if len(boxes) + len(spans[id(axis)]) > PIECES_MAX:
            return False
        return all(
            _clip(*_kept(axes, axis, first, last, offsets, write), radix, boxes)
            for first, last in spans[id(axis)]
        )
    boxes.append((axes, offsets, write))
    return len(boxes) <= PIECES_MAX


def _spans(step: int, count: int, low: int, high: int, size: int) -> list[tuple[int, int]]:
    """Return spans (first and last coordinate) of an axis where a digit may lie in its range.

    The digit goes from ``low`` to ``high`` in the box, by ``step`` along the axis. One span has the
    coordinates where the digit fits for all coordinates of the other axes. Each coordinate where it
    fits only for some of them is a span of its own.
    """
    rest = high - low - step * (count - 1)
    first, last = max(0, -((low + rest) // step)), min(count - 1, (size - 1 - low) // step)
    inner = max(first, -(low // step)), min(last, (size - 1 - low - rest) // step)
    if inner[0] > inner[1]:
        return [(number, number) for number in range(first, last + 1)]
    before = [(number, number) for number in range(first, inner[0])]
    return [*before, inner, *((number, number) for number in range(inner[1] + 1, last + 1))]


def _kept(
    axes: list[_Axis], axis: _Axis, first: int, last: int, offsets: list[int], write: int
) -> tuple[list[_Axis], list[int], int]:
    kept = [
        _Axis(last - first + 1, other.read, other.write, other.digits) if other is axis else other
        for other in axes
    ]
    moved = [offset + first * digit for offset, digit in zip(offsets, axis.digits, strict=True)]
    return kept, moved, write + first * axis.write


def _region(
    box: tuple[list[_Axis], list[int], int], radix: _Radix, source: int, number: int
) -> Region:
    axes, offsets, write = box
    offset = source + sum(digit * read for digit, read in zip(offsets, radix.reads, strict=True))
    strides = tuple(
        sum(digit * read for digit, read in zip(axis.digits, radix.reads, strict=True))
        for axis in axes
    )
    return Region(
        tuple(axis.size for axis in axes),
        View(offset, strides),
        View(write, tuple(axis.write for axis in axes)),
        number,
    )


def compose_all(outer: Region, inner: Sequence[Region], *, is_covered: bool) -> list[Region] | None:
    """Compose with each of the regions that wrote a tensor; see ``compose``.

    Elements that no inner region wrote are left out. Returns None if some are left out although
    ``is_covered`` says that the inner regions cover the tensor.
    """
    results: list[Region] = []
    for region in inner:
        some = compose(outer, region)
        if some is None or len(results) + len(some) > PIECES_MAX:
            return None
        results += some
    if is_covered and sum(region.count for region in results) != outer.count:
        return None
    return results
