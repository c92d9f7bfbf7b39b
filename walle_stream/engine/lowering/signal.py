"""Rules of signal processing that make constants: windows, and weights of the mel scale."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from walle_stream.engine.lowering.element_types import attribute_dtype
from walle_stream.engine.lowering.registry import Call, Kind, Result, lowers
from walle_stream.engine.lowering.tables import check_table
from walle_stream.engine.program import Array
from walle_stream.engine.rules import FLOAT32, TEXT
from walle_stream.errors import DTypeError, ShapeError

_WINDOWS: Final[Mapping[str, tuple[float, ...]]] = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""Weights of cosines of 0, 1 and 2 turns, of alternating sign."""


@lowers(*_WINDOWS, kind=Kind.TRANSFORM)
def _window(call: Call) -> Result:
    given = call.numbers(0) or ()
    if len(given) != 1:
        raise ShapeError(f"a window of {len(given)} sizes")
    (size,) = check_table((given[0],), "a window")
    turns = size if call.number("periodic", 1) else size - 1
    # a symmetric window of one element is its own middle
    angles = np.arange(size) * (2 * np.pi / turns) if turns > 0 else np.full(size, np.pi)
    result = np.zeros(size)
    for number, weight in enumerate(_WINDOWS[call.node.operator]):
        result += (-1) ** number * weight * np.cos(number * angles)
    return call.builder.constant(_converted(call, result))


def _converted(call: Call, weights: Array) -> Array:
    dtype = attribute_dtype(call, "output_datatype", FLOAT32)
    if dtype == TEXT:
        raise DTypeError("weights of text")
    return weights.astype(dtype)


@lowers("MelWeightMatrix", kind=Kind.TRANSFORM)
def _mel_weight_matrix(call: Call) -> Result:
    arrays = [call.values(number) for number in range(5)]
    if any(each.size != 1 for each in arrays):
        raise ShapeError("an input of the matrix is not one element")
    numbers = [float(each.reshape(-1)[0]) for each in arrays]
    if not np.isfinite(numbers).all():
        raise ShapeError(f"the matrix is asked for with {numbers}")
    bands, length, rate = (int(each) for each in numbers[:3])
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
    # where the bands begin and end, as bins of the spectrum
    first, last = (2595 * np.log10(1 + each / 700) for each in (low, high))
    mels = first + np.arange(bands + 2) * ((last - first) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges: Array = ((length + 1) * hertz // rate).astype(np.int64)
    return edges
