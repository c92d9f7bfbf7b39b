"""Resize and Upsample: axis by axis, with weights that depend only on shapes."""

from collections.abc import Sequence
from functools import reduce
from math import floor, isfinite, prod

import numpy as np

from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.interpolation import (
    CUBIC_A,
    Filter,
    Floats,
    Indices,
    Resizing,
    nearest_indices,
    original_coordinates,
)
from walle_stream.engine.lowering.precision import narrowed, weighted_dtype
from walle_stream.engine.lowering.registry import Call, Kind, Result, axes_of, lowers
from walle_stream.engine.program import Tensor
from walle_stream.engine.region import Shape, strides_of
from walle_stream.engine.rules import check_size
from walle_stream.errors import LoweringError, ShapeError

_CROP = "tf_crop_and_resize"
_MATRIX_MAX = 1 << 24
"""Largest number of elements of a matrix of weights; a larger one is mostly zeros."""
_MACS_PER_MOVE = 32


@lowers("Upsample", kind=Kind.COMPOSITE)
def _upsample(call: Call) -> Result:
    x = call.tensor(0)
    scales: Sequence[float]
    if call.has(1):
        scales = _reals(call, 1)
    elif "scales" in call.node.attributes:
        scales = call.reals("scales")
    else:
        scales = [1.0, 1.0, call.real("height_scale"), call.real("width_scale")]
    return _resized_simply(call, x, scales)


@lowers("Resize", kind=Kind.COMPOSITE)
def _resize(call: Call) -> Result:
    x = call.tensor(0)
    if call.version < 11:  # noqa: PLR2004  # without sizes and coordinate modes
        return _resized_simply(call, x, _reals(call, 1))
    mode = call.text("coordinate_transformation_mode", "half_pixel")
    axes = _axes(call, x, is_cropped=mode == _CROP)
    coordinates = {number: original_coordinates(axis, mode) for number, axis in axes.items()}
    method = call.choice("mode", ("nearest", "linear", "cubic"), "nearest")
    if method == "nearest":
        rounding = call.text("nearest_mode", "round_prefer_floor")
        indices = {n: nearest_indices(at, axes[n].size, rounding) for n, at in coordinates.items()}
        result = _picked(call.builder, x, indices)
    else:
        coefficient = call.real("cubic_coeff_a", CUBIC_A)
        is_wide, excludes = (bool(call.number(n, 0)) for n in ("antialias", "exclude_outside"))
        kernel = Filter(method == "cubic", coefficient, is_wide, excludes)
        result = _weighted(call.builder, x, axes, coordinates, kernel)
    if mode != _CROP:
        return result
    return _extrapolated(call, result, axes, coordinates)


def _resized_simply(call: Call, x: Tensor, scales: Sequence[float]) -> Tensor:
    # before opset 11 an output element begins where an input element begins
    if len(scales) != x.rank:
        raise ShapeError(f"{len(scales)} scales for the {x.rank} axes of {list(x.shape)}")
    axes = {
        number: Resizing(size, _scaled(size, scale), scale, size * scale)
        for number, (size, scale) in enumerate(zip(x.shape, scales, strict=True))
    }
    _check_sizes(x, axes)
    coordinates = {
        number: original_coordinates(axis, "asymmetric") for number, axis in axes.items()
    }
    if call.choice("mode", ("nearest", "linear", "bilinear"), "nearest") == "nearest":
        # onnxruntime rounds up when it shrinks an axis, and the test cases of opset 10 expect it
        return _picked(call.builder, x, {
            n: nearest_indices(at, axes[n].size, "ceil" if axes[n].scale < 1 else "floor")
            for n, at in coordinates.items()
        })  # fmt: skip
    return _weighted(call.builder, x, axes, coordinates, Filter(is_cubic=False))


def _reals(call: Call, number: int) -> list[float]:
    values = call.values(number).reshape(-1)
    if values.dtype.kind not in "fiu":
        raise LoweringError(f"input {number} must be numbers, not {values.dtype.name}")
    return [float(value) for value in values]


def _scaled(size: int, scale: float, part: float = 1.0) -> int:
    if not (isfinite(scale) and scale > 0 and isfinite(part)):
        raise ShapeError(f"a scale of {scale} for a part {part} of an axis is not valid")
    # rounded to float32, the dtype of scales, so that 10 * 0.7 is 7
    wide = np.float64(size) * np.float64(part) * scale
    return max(0, floor(np.float32(wide) if abs(wide) < np.finfo(np.float32).max else wide))


def _axes(call: Call, x: Tensor, *, is_cropped: bool) -> dict[int, Resizing]:
    named = call.list("axes")
    numbers = axes_of(range(x.rank) if named is None else named, x.rank)
    count = len(numbers)
    roi = _reals(call, 1) if is_cropped and call.has(1) else []
    if roi and len(roi) != 2 * count:
        raise ShapeError(f"a roi of {len(roi)} numbers for {count} axes")
    parts = list(zip(roi[:count], roi[count:], strict=True)) or [(0.0, 1.0)] * count
    has_scales = call.has(2) and call.tensor(2).size > 0
    has_sizes = call.has(3) and call.tensor(3).size > 0
    if count and has_scales == has_sizes:
        raise LoweringError("either scales or sizes must be given")
    shape = [x.shape[axis] for axis in numbers]
    resizings = _of_scales(call, shape, parts) if has_scales else _of_sizes(call, shape, parts)
    axes = dict(zip(numbers, resizings, strict=True))
    _check_sizes(x, axes)
    return axes


def _of_scales(
    call: Call, shape: Sequence[int], parts: Sequence[tuple[float, float]]
) -> list[Resizing]:
    scales = _reals(call, 2)
    if len(scales) != len(shape):
        raise ShapeError(f"{len(scales)} scales for {len(shape)} axes")
    return [
        Resizing(size, _scaled(size, scale, end - start), scale, size * scale, start, end)
        for size, scale, (start, end) in zip(shape, scales, parts, strict=True)
    ]


def _of_sizes(
    call: Call, shape: Sequence[int], parts: Sequence[tuple[float, float]]
) -> list[Resizing]:
    sizes = call.numbers(3) or ()
    if len(sizes) != len(shape) or min(sizes, default=0) < 0:
        raise ShapeError(f"sizes {list(sizes)} for {len(shape)} axes")
    # an empty axis has no scale; a later check refuses an output of it
    scales = [new / old if new and old else 1.0 for old, new in zip(shape, sizes, strict=True)]
    lengths = [float(n) for n in sizes]
    policies = ("stretch", "not_larger", "not_smaller")
    policy = call.choice("keep_aspect_ratio_policy", policies, "stretch")
    if policy != "stretch" and sizes:
        kept = min(scales) if policy == "not_larger" else max(scales)
        scales = [kept] * len(scales)
        lengths = [kept * size for size in shape]
        sizes = tuple(floor(length + 0.5) for length in lengths)
    return [
        Resizing(old, new, scale, length, start, end)
        for old, new, scale, length, (start, end) in zip(
            shape, sizes, scales, lengths, parts, strict=True
        )
    ]


def _check_sizes(x: Tensor, axes: dict[int, Resizing]) -> None:
    check_size(_shape(x, axes), "the output")
    if any(axis.output and not axis.size for axis in axes.values()):
        raise ShapeError(f"shape {list(x.shape)} has no elements to be resized")


def _shape(x: Tensor, axes: dict[int, Resizing]) -> Shape:
    return tuple(axes[n].output if n in axes else size for n, size in enumerate(x.shape))


def _picked(builder: Builder, x: Tensor, indices: dict[int, Indices]) -> Tensor:
    shape = tuple(len(indices[n]) if n in indices else size for n, size in enumerate(x.shape))
    if 0 in shape:
        return builder.raster([x], shape, [])
    # axes whose indices repeat or have a constant step form one view; TAKE reads the others
    viewed, size, strides, offset = [], [], [], 0
    left, moves = {}, False
    for axis, (count, stride) in enumerate(zip(x.shape, strides_of(x.shape), strict=True)):
        own = indices.get(axis, np.arange(count))
        first = int(own[0])
        times = int(np.count_nonzero(own == first))
        step = int(own[1]) - first if len(own) > 1 else 0
        groups = len(own) // times
        if np.array_equal(own, first + step * np.arange(len(own))):
            times, groups = 1, len(own)
        elif np.array_equal(own, first + np.arange(groups).repeat(times)):
            step = 1
        else:
            left[axis] = own
            first, step, times, groups = 0, 1, 1, count
        moves |= (first, step, times, groups) != (0, 1, 1, count)
        viewed.append(groups * times)
        size += [groups, times]
        strides += [step * stride, 0]
        offset += first * stride
    if moves:
        x = builder.reshape(builder.view(x, size, strides, offset), viewed)
    for axis, own in left.items():
        x = _taken(builder, x, axis, own)
    return x


def _taken(builder: Builder, x: Tensor, axis: int, indices: Indices) -> Tensor:
    return take(builder, x, builder.constant(np.ascontiguousarray(indices)), axis)


def _weighted(
    builder: Builder, x: Tensor, axes: dict[int, Resizing], coordinates: dict[int, Floats],
    kernel: Filter,
) -> Tensor:  # fmt: skip
    dtype = weighted_dtype(x.dtype)
    if 0 in _shape(x, axes):
        return builder.raster([x], _shape(x, axes), [])
    result = builder.cast(x, dtype)
    # axes that shrink come first, which leaves less work for the others
    for number in sorted(axes, key=lambda number: axes[number].output / axes[number].size):
        axis, at = axes[number], coordinates[number]
        if not np.array_equal(at, np.arange(axis.size)):
            result = _resized_axis(builder, result, number, *kernel.neighbours(at, axis))
    if x.dtype.kind in "iu":
        result = builder.round(result)
    return narrowed(builder, result, x.dtype)


def _resized_axis(
    builder: Builder, x: Tensor, axis: int, indices: Indices, weights: Floats
) -> Tensor:
    before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    count, taps = indices.shape
    is_dense = size / _MACS_PER_MOVE + 1 <= 3 * taps  # a tap is taken, weighted and added
    if not is_dense or count * size > _MATRIX_MAX:

        def term(tap: int) -> Tensor:
            factor = weights[:, tap].reshape(count, *(1,) * len(behind)).astype(x.dtype)
            slices = _taken(builder, x, axis, indices[:, tap])
            return builder.mul(slices, builder.constant(factor))

        return reduce(builder.add, map(term, range(taps)))
    matrix = np.zeros((count, size))
    np.add.at(matrix, (np.arange(count)[:, None], indices), weights)
    outer, inner = prod(before), prod(behind)
    if inner == 1:
        columns = builder.constant(np.ascontiguousarray(matrix.T).astype(x.dtype))
        result = builder.matmul(builder.reshape(x, (outer, size)), columns)
    else:
        rows = builder.constant(matrix.astype(x.dtype))
        lead = (outer,) if outer > 1 else ()
        result = builder.matmul(rows, builder.reshape(x, (*lead, size, inner)))
    return builder.reshape(result, (*before, count, *behind))


def _extrapolated(
    call: Call, x: Tensor, axes: dict[int, Resizing], coordinates: dict[int, Floats]
) -> Tensor:
    outside = np.zeros((1,) * x.rank, np.bool_)
    for number, axis in axes.items():
        beyond = (coordinates[number] < 0) | (coordinates[number] > axis.size - 1)
        if beyond.any():
            outside = outside | beyond.reshape(-1, *(1,) * (x.rank - 1 - number))
    if not outside.any() or not x.size:
        return x
    value = call.real("extrapolation_value", 0.0)
    return call.builder.select(call.builder.constant(outside), value, x)
