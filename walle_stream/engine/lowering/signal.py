"""Signal processing: Fourier transforms, windows, weights of the mel scale.

Transforms are products with matrices, which are computed in float64.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.element_types import attribute_dtype
from walle_stream.engine.lowering.precision import require_floating, widened
from walle_stream.engine.lowering.registry import Call, Kind, Result, axis_of, lowers
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.region import strides_of
from walle_stream.engine.rules import FLOAT32, TEXT, check_size, check_table
from walle_stream.errors import DTypeError, ShapeError

_COMPLEX: Final = 2


@lowers("DFT")
def _dft(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    is_inverse, is_onesided = bool(call.number("inverse", 0)), bool(call.number("onesided", 0))
    _check_signal(x, is_onesided=is_onesided, is_inverse=is_inverse)
    # the axis is an input since opset 20
    by_input = call.version >= 20  # noqa: PLR2004
    axis = axis_of(_one(call, 2, -2) if by_input else call.number("axis", 1), x.rank)
    if axis == x.rank - 1:
        raise ShapeError("the last axis holds real and imaginary parts and cannot be transformed")
    size = x.shape[axis]
    length = _one(call, 1, 2 * (size - 1) if is_onesided and is_inverse else size)
    if length < 1:
        raise ShapeError(f"a transform of length {length}")
    order = (
        *(number for number in range(x.rank) if number not in {axis, x.rank - 1}),
        axis,
        x.rank - 1,
    )
    moved = moves.transpose(builder, x, order)
    limit = length // 2 + 1 if is_onesided and is_inverse else length
    if size > limit:
        moved = moves.slice_axis(builder, moved, x.rank - 2, 0, limit)
    result = _transformed(builder, moved, length, is_inverse=is_inverse, is_onesided=is_onesided)
    back = tuple(order.index(number) for number in range(x.rank))
    return builder.cast(moves.transpose(builder, result, back), x.dtype)


def _check_signal(x: Tensor, *, is_onesided: bool, is_inverse: bool) -> None:
    require_floating(x, "the signal")
    if x.rank < 2 or x.shape[-1] not in {1, _COMPLEX}:  # noqa: PLR2004  # a signal, and its parts
        raise ShapeError(f"signal {list(x.shape)}: its last axis is 1 (real) or 2 (complex)")
    if is_onesided and (x.shape[-1] == _COMPLEX) != is_inverse:
        wanted = "complex" if is_inverse else "real"
        raise ShapeError(f"a onesided transform of shape {list(x.shape)}: the signal is {wanted}")


def _one(call: Call, number: int, default: int) -> int:
    numbers = call.numbers(number)
    if numbers is None:
        return default
    if len(numbers) != 1:
        raise ShapeError(f"input {number} has {len(numbers)} elements, not one")
    return numbers[0]


def _transformed(
    builder: Builder, x: Tensor, length: int, *, is_inverse: bool, is_onesided: bool
) -> Tensor:
    # multiplies (..., n, parts) by a matrix (n * parts, bins * parts of the output)
    count, parts = x.shape[-2:]
    check_table((count, parts, length, _COMPLEX), "the matrix of the transform")
    wide = widened(builder, x)
    if is_inverse and is_onesided:
        matrix = _real_inverse(count, parts, length)
    else:
        matrix = _matrix(count, parts, length, is_inverse=is_inverse, is_onesided=is_onesided)
    lead = x.shape[:-2]
    rows = int(np.prod(lead, dtype=np.int64))
    table = builder.constant(matrix.reshape(count * parts, -1).astype(wide.dtype))
    result = builder.matmul(builder.reshape(wide, (rows, count * parts)), table)
    return builder.reshape(result, (*lead, *matrix.shape[2:]))


def _angles(count: int, bins: int, length: int) -> Array:
    # the product is taken modulo the length, since large angles would lose digits
    turns = np.outer(np.arange(count), np.arange(bins)) % length
    angles: Array = turns * (2 * np.pi / length)
    return angles


def _matrix(count: int, parts: int, length: int, *, is_inverse: bool, is_onesided: bool) -> Array:
    bins = length // 2 + 1 if is_onesided else length
    angles = _angles(count, bins, length)
    cos, sin = np.cos(angles), np.sin(angles) * (1 if is_inverse else -1)
    result = np.empty((count, parts, bins, _COMPLEX))
    result[:, 0, :, 0], result[:, 0, :, 1] = cos, sin
    if parts == _COMPLEX:
        result[:, 1, :, 0], result[:, 1, :, 1] = -sin, cos
    return result / length if is_inverse else result


def _real_inverse(count: int, parts: int, length: int) -> Array:
    # each bin also counts for its mirror image, except the first and the middle one
    angles = _angles(count, length, length)
    bins = np.arange(count)
    weight = np.where((bins == 0) | (2 * bins == length), 1.0, 2.0)[:, None] / length
    result = np.empty((count, parts, length, 1))
    result[:, 0, :, 0], result[:, 1, :, 0] = weight * np.cos(angles), -weight * np.sin(angles)
    return result


@lowers("STFT")
def _stft(call: Call) -> Result:
    x, builder = call.tensor(0), call.builder
    is_onesided = bool(call.number("onesided", 1))
    _check_signal(x, is_onesided=is_onesided, is_inverse=False)
    if x.rank != 3:  # noqa: PLR2004  # batch, time, parts
        raise ShapeError(f"signal {list(x.shape)}: batches, samples and parts are expected")
    batches, samples, parts = x.shape
    window = call.optional(2)
    step, length = _one(call, 1, 0), _one(call, 3, samples if window is None else window.size)
    if step < 1 or not 1 <= length <= samples:
        raise ShapeError(f"frames of length {length} with step {step} for {samples} samples")
    if window is not None and (window.shape != (length,) or window.dtype != x.dtype):
        raise ShapeError(f"window {window} for frames of {length} of {x.dtype.name}")
    count = (samples - length) // step + 1
    shape = check_size((batches, count, length, parts))
    own = strides_of(x.shape)
    frames = builder.view(x, shape, (own[0], step * own[1], own[1], own[2]))
    if window is not None:
        frames = builder.mul(frames, builder.reshape(window, (length, 1)))
    result = _transformed(builder, frames, length, is_inverse=False, is_onesided=is_onesided)
    return builder.cast(result, x.dtype)


_WINDOWS: Final[Mapping[str, tuple[float, ...]]] = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""Weights of cosines of 0, 1 and 2 turns, which have alternating signs."""


@lowers(*_WINDOWS, kind=Kind.TRANSFORM)
def _window(call: Call) -> Result:
    (size,) = check_table((_one(call, 0, 0),), "a window")
    turns = size if call.number("periodic", 1) else size - 1
    # a symmetric window of one element has only its middle
    angles = np.arange(size) * (2 * np.pi / turns) if turns > 0 else np.full(size, np.pi)
    result = np.zeros(size)
    for number, weight in enumerate(_WINDOWS[call.node.operator]):
        result += (-1) ** number * weight * np.cos(number * angles)
    return call.builder.constant(_converted(call, result))


def _converted(call: Call, weights: Array) -> Array:
    dtype = attribute_dtype(call, "output_datatype", FLOAT32)
    if dtype == TEXT:
        raise DTypeError("output_datatype must not be text")
    return weights.astype(dtype)


@lowers("MelWeightMatrix", kind=Kind.TRANSFORM)
def _mel_weight_matrix(call: Call) -> Result:
    arrays = [call.values(number) for number in range(5)]
    if any(array.size != 1 for array in arrays):
        raise ShapeError("an input of the matrix does not have one element")
    numbers = [float(array.reshape(-1)[0]) for array in arrays]
    if not np.isfinite(numbers).all():
        raise ShapeError(f"the matrix is requested with infinite or nan values: {numbers}")
    bands, length, rate = (int(value) for value in numbers[:3])
    low, high = numbers[3:]
    if bands < 0 or length < 0 or rate < 1 or not -700 < low <= high:  # noqa: PLR2004  # of the scale
        raise ShapeError(f"{bands} bands of {length} samples, {rate} Hz, from {low} to {high} Hz")
    shape = check_table((length // 2 + 1, bands), "the matrix")
    edges = _edges(bands, length, rate, low, high)
    bins = np.arange(shape[0])[:, None]
    first, middle, last = edges[:-2], edges[1:-1], edges[2:]
    rising = (bins - first) / np.maximum(middle - first, 1)
    rising = np.where(middle == first, bins == middle, rising)
    falling = (last - bins) / np.maximum(last - middle, 1)
    result = np.where(bins <= middle, rising * (bins >= first), falling * (bins < last))
    return call.builder.constant(_converted(call, result))


def _edges(bands: int, length: int, rate: int, low: float, high: float) -> Array:
    # the bins of the spectrum where bands begin and end
    first, last = (2595 * np.log10(1 + bound / 700) for bound in (low, high))
    mels = first + np.arange(bands + 2) * ((last - first) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges: Array = ((length + 1) * hertz // rate).astype(np.int64)
    return edges
