"""Transforms of shapes and positions, which use only the raster."""

from math import prod

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import common_shape
from walle_stream.engine.lowering.registry import Call, Kind, Result, axes_of, axis_of, lowers
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import FLOAT32, INT64, TEXT
from walle_stream.errors import LoweringError, ShapeError


@lowers("Identity", kind=Kind.TRANSFORM)
def _identity(call: Call) -> Result:
    if not call.inputs:
        raise LoweringError("input 0 is missing")
    return call.inputs[0]


@lowers("Constant", kind=Kind.TRANSFORM)
def _constant(call: Call) -> Result:
    builder = call.builder
    for name in ("value", "sparse_value"):
        value = call.attribute(name)
        if value is not None:
            if not isinstance(value, (np.ndarray, np.generic)):
                raise LoweringError(f"attribute {name!r} must be a tensor")
            return builder.constant(value)
    for name, read, dtype in (
        ("value_float", call.real, FLOAT32), ("value_floats", call.reals, FLOAT32),
        ("value_int", call.number, INT64), ("value_ints", call.list, INT64),
        ("value_string", call.text, TEXT), ("value_strings", call.texts, TEXT),
    ):  # fmt: skip
        if call.attribute(name) is not None:
            return builder.constant(np.array(read(name), dtype))
    raise LoweringError("a constant has no value")


@lowers("Shape", kind=Kind.TRANSFORM)
def _shape(call: Call) -> Result:
    shape = call.tensor(0).shape
    rank = len(shape)
    start = min(max(call.number("start", 0), -rank), rank)
    stop = min(max(call.number("end", rank), -rank), rank)
    first, last = start % rank if start < 0 else start, stop % rank if stop < 0 else stop
    return call.builder.constant(np.array(shape[first:last], np.int64))


@lowers("Size", kind=Kind.TRANSFORM)
def _size(call: Call) -> Result:
    return call.builder.constant(np.array(call.tensor(0).size, np.int64))


@lowers("Reshape", kind=Kind.TRANSFORM)
def _reshape(call: Call) -> Result:
    x = call.tensor(0)
    wanted = [*((call.numbers(1) if call.has(1) else call.list("shape")) or ())]
    if not call.number("allowzero", 0):
        for axis, size in enumerate(wanted):
            if size == 0:
                if axis >= x.rank:
                    raise ShapeError(f"size 0 keeps axis {axis}, which {list(x.shape)} lacks")
                wanted[axis] = x.shape[axis]
    return call.builder.reshape(x, moves.found_size(x, wanted))


@lowers("Flatten", kind=Kind.TRANSFORM)
def _flatten(call: Call) -> Result:
    x = call.tensor(0)
    axis = call.number("axis", 1)
    cut = axis if axis == x.rank else axis_of(axis, x.rank) if x.rank else 0
    return call.builder.reshape(x, (prod(x.shape[:cut]), prod(x.shape[cut:])))


@lowers("Squeeze", kind=Kind.TRANSFORM)
def _squeeze(call: Call) -> Result:
    x = call.tensor(0)
    named = call.numbers(1) if call.has(1) else call.list("axes")
    if named is None:
        axes = {axis for axis, size in enumerate(x.shape) if size == 1}
    else:
        axes = {axis_of(axis, x.rank) for axis in named}
    if any(x.shape[axis] != 1 for axis in axes):
        raise ShapeError(f"axes {sorted(axes)} of {list(x.shape)} are not all of size 1")
    return call.builder.reshape(x, [size for axis, size in enumerate(x.shape) if axis not in axes])


@lowers("Unsqueeze", kind=Kind.TRANSFORM)
def _unsqueeze(call: Call) -> Result:
    x = call.tensor(0)
    named = (call.numbers(1) if call.has(1) else call.list("axes")) or ()
    rank = x.rank + len(named)
    axes = axes_of(named, rank)
    sizes = iter(x.shape)
    return call.builder.reshape(x, [1 if axis in axes else next(sizes) for axis in range(rank)])


@lowers("Transpose", kind=Kind.TRANSFORM)
def _transpose(call: Call) -> Result:
    x = call.tensor(0)
    order = call.list("perm")
    return moves.transpose(
        call.builder, x, tuple(reversed(range(x.rank))) if order is None else order
    )


@lowers("Expand", kind=Kind.TRANSFORM)
def _expand(call: Call) -> Result:
    x = call.tensor(0)
    return call.builder.broadcast(x, common_shape(x.shape, call.numbers(1) or ()))


@lowers("Concat", kind=Kind.TRANSFORM)
def _concat(call: Call) -> Result:
    parts = call.tensors()
    return moves.concat(call.builder, parts, call.axis(parts[0].rank, 1))


@lowers("Split", kind=Kind.TRANSFORM)
def _split(call: Call) -> Result:
    x = call.tensor(0)
    axis = call.axis(x.rank, 0)
    total, count = x.shape[axis], call.number("num_outputs", len(call.node.outputs))
    sizes = call.numbers(1) if call.has(1) else call.list("split")
    if sizes is None:
        if not 0 < count == len(call.node.outputs):
            raise LoweringError(f"{count} parts for {len(call.node.outputs)} outputs")
        length = -(-total // count)
        sizes = tuple(max(0, min(length, total - length * number)) for number in range(count))
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise ShapeError(f"axis {axis} of {list(x.shape)} cannot be split into {list(sizes)}")
    outputs, start = [], 0
    for size in sizes:
        outputs.append(moves.slice_axis(call.builder, x, axis, start, start + size))
        start += size
    return tuple(outputs)


@lowers("Slice", kind=Kind.TRANSFORM)
def _slice(call: Call) -> Result:
    x = call.tensor(0)
    if call.has(1):
        starts, stops, axes, steps = (call.numbers(number) for number in range(1, 5))
    else:
        starts, stops, axes = (call.list(name) for name in ("starts", "ends", "axes"))
        steps = None
    starts, stops = starts or (), stops or ()
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(stops) == len(axes) == len(steps):
        raise ShapeError("starts, ends, axes and steps differ in length")
    first, sizes, strides = [0] * x.rank, list(x.shape), [1] * x.rank
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        if not step:
            raise ShapeError("a step is 0")
        number = axis_of(axis, x.rank)
        kept = range(*slice(start, stop, step).indices(x.shape[number]))
        # the step of a single element has no effect, and may be as large as an int64
        first[number], sizes[number] = kept.start, len(kept)
        strides[number] = step if len(kept) > 1 else 1
    return moves.crop(call.builder, x, first, sizes, strides)


@lowers("Tile", kind=Kind.TRANSFORM)
def _tile(call: Call) -> Result:
    x = call.tensor(0)
    repeats = call.numbers(1) or ()
    if len(repeats) != x.rank or min(repeats, default=0) < 0:
        raise ShapeError(f"{list(repeats)} repeats of shape {list(x.shape)}")
    builder = call.builder
    paired = [factor for size in x.shape for factor in (1, size)]
    spread = [factor for pair in zip(repeats, x.shape, strict=True) for factor in pair]
    repeated = builder.broadcast(builder.reshape(x, paired), spread)
    return builder.reshape(repeated, [n * size for n, size in zip(repeats, x.shape, strict=True)])


def _image(x: Tensor) -> tuple[int, ...]:
    if x.rank != 4:  # noqa: PLR2004  # batch, channels, height and width
        raise ShapeError(f"shape {list(x.shape)} does not have 4 axes")
    return x.shape


@lowers("DepthToSpace", kind=Kind.TRANSFORM)
def _depth_to_space(call: Call) -> Result:
    x, block, builder = call.tensor(0), call.number("blocksize"), call.builder
    n, c, h, w = _image(x)
    if block < 1 or c % (block * block):
        raise ShapeError(f"{c} channels in blocks of {block}")
    depth = c // (block * block)
    if call.text("mode", "DCR") == "DCR":
        split, order = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = moves.transpose(builder, builder.reshape(x, split), order)
    return builder.reshape(moved, (n, depth, h * block, w * block))


@lowers("SpaceToDepth", kind=Kind.TRANSFORM)
def _space_to_depth(call: Call) -> Result:
    x, block, builder = call.tensor(0), call.number("blocksize"), call.builder
    n, c, h, w = _image(x)
    if block < 1 or h % block or w % block:
        raise ShapeError(f"{h} by {w} in blocks of {block}")
    split = builder.reshape(x, (n, c, h // block, block, w // block, block))
    mode = call.text("mode", "DCR")
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = moves.transpose(builder, split, order)
    return builder.reshape(moved, (n, c * block * block, h // block, w // block))
