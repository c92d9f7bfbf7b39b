"""RotaryEmbedding: pairs of features, turned by an angle of their place."""

import numpy as np

from walle_stream.engine.lowering.addressing import take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.precision import wide_dtype
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.program import DType, Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of
from walle_stream.engine.rules import is_integer
from walle_stream.errors import DTypeError, ShapeError


@lowers("RotaryEmbedding")
def _rotary(call: Call) -> Result:
    builder, given = call.builder, call.tensor(0)
    shape, token_axis = _split(call)
    dtype = wide_dtype(given.dtype, call.tensor(1).dtype, call.tensor(2).dtype)
    x = builder.reshape(builder.cast(given, dtype), shape)
    turned = call.number("rotary_embedding_dim", 0) or shape[3]
    if not 0 <= turned <= shape[3] or turned % 2:
        raise ShapeError(f"{turned} features of {shape[3]} cannot be turned in pairs")
    half = turned // 2
    cosine, sine = (_angles(call, number, shape, token_axis, half, dtype) for number in (1, 2))
    step = 2 if call.number("interleaved", 0) else 1
    box = (*shape[:3], half)
    strides = (*strides_of(shape)[:3], step)
    starts = (0, 1 if step > 1 else half)
    if not x.size or not half:
        return given
    first, second = (builder.view(x, box, strides, start) for start in starts)
    real = builder.sub(builder.mul(cosine, first), builder.mul(sine, second))
    imaginary = builder.add(builder.mul(sine, first), builder.mul(cosine, second))
    regions = [
        Region(box, View(0, strides_of(box)), View(start, strides), number)
        for number, start in enumerate(starts)
    ]
    rest = View(turned, strides_of(shape))
    regions.append(Region((*shape[:3], shape[3] - turned), rest, rest, 2))
    result = builder.raster([real, imaginary, x], shape, regions)
    return builder.cast(builder.reshape(result, given.shape), given.dtype)


def _split(call: Call) -> tuple[Shape, int]:
    # four axes, and which of them is of the tokens
    shape = call.tensor(0).shape
    if len(shape) == 4:  # noqa: PLR2004  # batch, heads, tokens, features
        return shape, 2
    if len(shape) != 3:  # noqa: PLR2004  # batch, tokens, features of all heads
        raise ShapeError(f"shape {list(shape)} has neither 3 nor 4 axes")
    heads = call.number("num_heads")
    if heads < 1 or shape[2] % heads:
        raise ShapeError(f"{shape[2]} features in {heads} heads")
    return (*shape[:2], heads, shape[2] // heads), 1


def _angles(
    call: Call, number: int, shape: Shape, token_axis: int, half: int, dtype: DType
) -> Tensor:
    builder, cache, places = call.builder, call.tensor(number), call.optional(3)
    batch, tokens = shape[0], shape[token_axis]
    if places is not None:
        cache = _taken(builder, cache, places, (batch, tokens))
    if cache.shape != (batch, tokens, half):
        raise ShapeError(
            f"input {number} gives {list(cache.shape)}, not {[batch, tokens, half]} angles"
        )
    axes = (batch, 1, tokens, half) if token_axis == 2 else (batch, tokens, 1, half)  # noqa: PLR2004
    return builder.cast(builder.reshape(cache, axes), dtype)


def _taken(builder: Builder, cache: Tensor, places: Tensor, shape: Shape) -> Tensor:
    if cache.rank != 2 or places.shape != shape:  # noqa: PLR2004  # places and their angles
        raise ShapeError(f"places of shape {list(places.shape)} of angles of {list(cache.shape)}")
    if not is_integer(places.dtype):
        raise DTypeError(f"places are whole numbers, not {places.dtype.name}")
    return take(builder, cache, builder.cast(places, np.int64))
