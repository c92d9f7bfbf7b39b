"""Windows that slide over spatial axes, for convolutions and pools."""

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering.registry import Call
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Shape
from walle_stream.engine.rules import check_table
from walle_stream.errors import ShapeError

AUTO_PADS: Final = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")

_FIRST_SPATIAL: Final = 2
"""Number of axes of ``(N, C, *spatial)`` before the spatial ones."""


@dataclass(frozen=True, slots=True)
class Window:
    """A kernel and its positions, with one number per axis."""

    sizes: Shape
    """Sizes of the spatial axes, without padding."""
    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    after: Shape
    """Requested padding at the end; the last window may reach beyond it, or leave some unused."""
    output: Shape

    @property
    def taps(self) -> int:
        """Number of elements of one window."""
        return prod(self.kernel)

    @property
    def reach(self) -> Shape:
        """Number of elements from the first to the last tap."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def lengths(self) -> Shape:
        """Number of elements from the first tap of the first window to the last tap of the last."""
        return tuple(
            (n - 1) * s + reach
            for n, s, reach in zip(self.output, self.strides, self.reach, strict=True)
        )


def window_of(call: Call, sizes: Shape, kernel: Shape) -> Window:
    """Read the attributes of a convolution or a pool, with one number per spatial axis.

    Raises:
        ShapeError: An attribute does not fit.
    """
    if call.list("kernel_shape") not in {None, kernel}:
        raise ShapeError(f"kernel_shape {call.list('kernel_shape')} of weights {list(kernel)}")
    if len(kernel) != len(sizes):
        raise ShapeError(f"a kernel {list(kernel)} for {len(sizes)} spatial axes")
    strides = spatial(call, "strides", len(sizes), 1, least=1)
    dilations = spatial(call, "dilations", len(sizes), 1, least=1)
    mode = call.choice("auto_pad", AUTO_PADS, "NOTSET")
    if mode == "NOTSET":
        pads = spatial(call, "pads", 2 * len(sizes), 0, least=0)
    elif mode == "VALID":
        pads = (0,) * (2 * len(sizes))
    else:
        pads = _same_pads(sizes, kernel, strides, dilations, lower=mode == "SAME_LOWER")
    return placed(sizes, kernel, strides, dilations, pads, ceil=bool(call.number("ceil_mode", 0)))


def placed(
    sizes: Shape, kernel: Shape, strides: Shape, dilations: Shape, pads: Shape,
    *, ceil: bool = False,
) -> Window:  # fmt: skip
    """Compute the positions of a window, from one number per spatial axis.

    ``pads`` has the begins of all axes, then the ends. With ``ceil`` the last window may reach
    beyond the padding.

    Raises:
        ShapeError: The numbers do not fit each other, or are not positive.
    """
    rank = len(sizes)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank:
        raise ShapeError(
            f"a kernel {list(kernel)} with strides {list(strides)}, dilations {list(dilations)} and"
            f" pads {list(pads)} does not fit the {rank} spatial axes"
        )
    if min((*kernel, *strides, *dilations), default=1) < 1 or min(pads, default=0) < 0:
        raise ShapeError(
            f"kernel {list(kernel)}, strides {list(strides)} and dilations {list(dilations)} must"
            f" be positive, pads {list(pads)} not negative"
        )
    before, after = tuple(pads[:rank]), tuple(pads[rank:])
    output = []
    for size, k, s, d, front, back in zip(
        sizes, kernel, strides, dilations, before, after, strict=True
    ):
        room = size + front + back - (k - 1) * d - 1
        if room < 0 and size:
            raise ShapeError(
                f"a kernel of {k} with dilation {d} is wider than {size} elements and their padding"
            )
        count = max(0, (-(-room // s) if ceil else room // s) + 1)
        if ceil and count and (count - 1) * s >= size + front:
            count -= 1
        output.append(count)
    return Window(
        tuple(sizes), tuple(kernel), tuple(strides), tuple(dilations), before, after, tuple(output)
    )


def _same_pads(
    sizes: Shape, kernel: Shape, strides: Shape, dilations: Shape, *, lower: bool
) -> Shape:
    totals = [
        max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    small = tuple(total // 2 for total in totals)
    great = tuple(total - total // 2 for total in totals)
    return (*great, *small) if lower else (*small, *great)


def spatial(call: Call, name: str, count: int, default: int, *, least: int) -> Shape:
    """Read an attribute of ``count`` numbers, each at least ``least``; by default all ``default``.

    Raises:
        ShapeError: The count differs, or a number is too small.
    """
    value = call.list(name)
    if value is None:
        return (default,) * count
    if len(value) != count or min(value, default=least) < least:
        raise ShapeError(f"{name} {list(value)}: {count} numbers of at least {least} are expected")
    return value


def spatial_sizes(x: Tensor, count: int | None = None) -> Shape:
    """Return the sizes of the spatial axes of ``(N, C, *spatial)``.

    Raises:
        ShapeError: There is no spatial axis, or their number is not ``count``.
    """
    if x.rank <= _FIRST_SPATIAL:
        raise ShapeError(f"shape {list(x.shape)} has no spatial axis: (N, C, ...) is expected")
    if count is not None and x.rank != _FIRST_SPATIAL + count:
        raise ShapeError(f"shape {list(x.shape)} does not have {count} spatial axes after (N, C)")
    return x.shape[_FIRST_SPATIAL:]


def tap_indices(window: Window, axis: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the index along an axis of each tap of each window: ``(output, kernel)``.

    The index of a tap in the padding is negative or beyond the size.
    """
    check_table((window.output[axis], window.kernel[axis]), "the taps")
    starts = np.arange(window.output[axis]) * window.strides[axis] - window.before[axis]
    return np.add.outer(starts, np.arange(window.kernel[axis]) * window.dilations[axis])
