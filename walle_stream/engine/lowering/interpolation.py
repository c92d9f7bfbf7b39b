"""Weights of interpolations, for computed points and for resized axes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import check_table
from walle_stream.errors import LoweringError

CUBIC_A: Final = -0.75

_STEPS: Final = 8
"""Number of temporary arrays that the weights of an axis need."""

type Floats = np.ndarray[Any, np.dtype[np.float64]]
type Indices = np.ndarray[Any, np.dtype[np.int64]]


def cubic_weights(builder: Builder, part: Tensor, a: float) -> list[Tensor]:
    """Return the weights of the four neighbours of points, ``part`` (0 .. 1) past the second."""
    add, mul = builder.add, builder.mul

    def near(distance: Tensor) -> Tensor:
        inner = add(mul(distance, a + 2), -(a + 3))
        return add(mul(inner, mul(distance, distance)), 1)

    def far(distance: Tensor) -> Tensor:
        inner = add(mul(add(mul(distance, a), -5 * a), distance), 8 * a)
        return add(mul(inner, distance), -4 * a)

    rest = builder.sub(1, part)
    return [far(add(part, 1)), near(part), near(rest), far(add(rest, 1))]


@dataclass(frozen=True, slots=True)
class Resizing:
    """The sizes and the scale of one resized axis."""

    size: int
    output: int
    scale: float
    """The given scale, or the quotient of the sizes."""
    length: float
    """The size times the scale, before it is rounded down to ``output``."""
    start: float = 0.0
    """Start of the part that ``tf_crop_and_resize`` keeps, 0 .. 1; ``end`` is its end."""
    end: float = 1.0


def original_coordinates(axis: Resizing, mode: str) -> Floats:
    """Return the input coordinate of each output element.

    Raises:
        LoweringError: The mode is unknown, or a coordinate is infinite.
    """
    check_table((axis.output,), "the coordinates")
    rule = _TRANSFORMATIONS.get(mode)
    if rule is None:
        raise LoweringError(f"coordinate_transformation_mode {mode!r} is unknown")
    coordinates = rule(axis, np.arange(axis.output, dtype=np.float64))
    if not np.isfinite(coordinates).all():
        raise LoweringError("its scales or its region of interest give infinite coordinates")
    return coordinates


def _unscaled(axis: Resizing, x: Floats) -> Floats:
    if axis.length == axis.output:
        return x * axis.size / max(axis.output, 1)
    return x / axis.scale


def _half_pixel(axis: Resizing, x: Floats) -> Floats:
    return _unscaled(axis, x + 0.5) - 0.5


def _symmetric(axis: Resizing, x: Floats) -> Floats:
    adjustment = axis.output / axis.length if axis.length else 1.0
    return axis.size / 2 * (1 - adjustment) + _half_pixel(axis, x)


def _crop(axis: Resizing, x: Floats) -> Floats:
    last = axis.size - 1
    if axis.output == 1:
        return x + 0.5 * (axis.start + axis.end) * last
    return axis.start * last + x * (axis.end - axis.start) * last / (axis.output - 1)


_TRANSFORMATIONS: Final[Mapping[str, Callable[[Resizing, Floats], Floats]]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda axis, x: _half_pixel(axis, x) if axis.output > 1 else x,
    "align_corners": lambda axis, x: (
        x * (axis.size - 1) / (axis.length - 1) if axis.output > 1 else x
    ),
    "asymmetric": _unscaled,
    "tf_half_pixel_for_nn": lambda axis, x: _unscaled(axis, x + 0.5),
    "tf_crop_and_resize": _crop,
}


def nearest_indices(at: Floats, size: int, mode: str) -> Indices:
    """Choose an existing element for each of the ``original_coordinates``.

    Raises:
        LoweringError: The ``nearest_mode`` is unknown.
    """
    rule = _ROUNDINGS.get(mode)
    if rule is None:
        raise LoweringError(f"nearest_mode {mode!r} is unknown")
    return np.clip(rule(at), 0, size - 1).astype(np.int64)


_ROUNDINGS: Final[Mapping[str, Callable[[Floats], Floats]]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: the weight of an element by its distance."""

    is_cubic: bool
    a: float = CUBIC_A
    antialias: bool = False
    """Whether the filter is at least as wide as an output element."""
    exclude_outside: bool = False
    """Whether elements outside have no weight; otherwise they have the border's value."""

    def neighbours(self, at: Floats, axis: Resizing) -> tuple[Indices, Floats]:
        """Return existing indices and their weights, one row per coordinate."""
        pace = min(axis.scale, 1.0) if self.antialias else 1.0
        reach = ceil(min((2 if self.is_cubic else 1) / pace, 2.0**31))
        check_table((len(at), 2 * reach, _STEPS), "the weights of all neighbours")
        low = np.floor(at)
        offsets = np.arange(1 - reach, reach + 1, dtype=np.float64)
        indices = low[:, None] + offsets
        weights = self._weights(np.abs(indices - at[:, None]) * pace)
        if self.exclude_outside:
            weights = np.where((indices >= 0) & (indices < axis.size), weights, 0.0)
        if self.exclude_outside or self.antialias:
            total = weights.sum(axis=1, keepdims=True)
            weights = np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)
        return np.clip(indices, 0, axis.size - 1).astype(np.int64), weights

    def _weights(self, distance: Floats) -> Floats:
        if not self.is_cubic:
            return np.maximum(1 - distance, 0)
        a = self.a
        near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))  # noqa: PLR2004
