"""Random programs for the conformance suite of backends."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final

import numpy as np

from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, DType, Program, Step, Tensor
from walle_stream.engine.region import Region, Shape, View, strides_of, whole
from walle_stream.engine.rules import infer
from walle_stream.testing.backend.steps import elements
from walle_stream.testing.stages import verify_program

_MAPS: Final = (Operator.NEG, Operator.ABS, Operator.TANH, Operator.ERF, Operator.SIN)
_PAIRS: Final = (Operator.ADD, Operator.SUB, Operator.MAXIMUM, Operator.MINIMUM, Operator.MUL)


def chain_of(seed: int, shape: Shape, dtype: DType, count: int = 14) -> Program:
    """Return a program whose steps read each other; all are continuous, so errors stay small.

    Args:
        seed: Seed of the random choices.
        shape: Shape of inputs and outputs.
        dtype: A floating dtype.
        count: Number of operations, each of one step or a few.

    Returns:
        A program with two inputs, three outputs and some constants.
    """
    draw = np.random.default_rng([seed, *shape])
    chain = _Chain(dtype)
    inputs = [Tensor(shape, dtype) for _ in range(2)]
    live = [*inputs, Tensor(shape, dtype, elements(dtype, shape, seed, special=False))]
    for _ in range(count):
        x, y = (live[each] for each in draw.integers(0, len(live), 2))
        live.append(chain.grown(x, y, draw))
    program = Program(inputs, [live[-1], live[-3], live[-5]], chain.steps)
    verify_program(program)
    return program


def flipped(x: Tensor) -> Step:
    """Return a step that reverses a tensor.

    Args:
        x: A tensor with at least one element.
    """
    size = prod(x.shape)
    region = Region((size,), View(size - 1, (-1,)), View(0, (1,)))
    return _raster([x], x.shape, [region], None)


def random_raster(
    seed: int, dtype: DType, shape: Shape | None = None
) -> tuple[list[Array], dict[str, Any]]:
    """Return a raster of one to three regions that lie side by side, or are added up.

    Args:
        seed: Seed of the random choices.
        dtype: Dtype of inputs and output.
        shape: Shape of the only input; without it, two inputs of small random shapes.

    Returns:
        The inputs and the parameters of the step.
    """
    draw = np.random.default_rng(seed)
    shapes = [shape] if shape else [tuple(draw.integers(1, 7, 3).tolist()) for _ in range(2)]
    output = shape or tuple(draw.integers(1, 7, int(draw.integers(1, 5))).tolist())
    is_sum = dtype.kind in "fiu" and seed % 3 == 0
    cuts = sorted({0, output[0], *draw.integers(0, output[0] + 1, 2).tolist()})
    regions = []
    for start, stop in pairwise(cuts):
        if len(cuts) > 2 and draw.random() < 0.25:  # noqa: PLR2004  # a gap now and then
            continue
        # regions that are added up may overlap
        first = 0 if is_sum else start
        size = (stop - start, *output[1:])
        place = int(draw.integers(0, len(shapes)))
        strides = strides_of(output)
        order = draw.permutation(len(size)).tolist()
        regions.append(
            Region(
                tuple(size[axis] for axis in order),
                _source(draw, [size[axis] for axis in order], prod(shapes[place])),
                View(first * strides[0], tuple(strides[axis] for axis in order)),
                place,
            )
        )
    fill = "" if dtype.kind == "O" else 1 if seed % 2 else 0
    parameters = {
        "regions": tuple(regions), "shape": output, "dtype": dtype, "fill": fill,
        "accumulate": is_sum,
    }  # fmt: skip
    inputs = [elements(dtype, each, seed + n, special=False) for n, each in enumerate(shapes)]
    return inputs, parameters


def _source(draw: np.random.Generator, size: Sequence[int], count: int) -> View:
    """Return a random view of a box inside a tensor; strides have any sign and may be 0."""
    order = draw.permutation(len(size)).tolist()
    nested = strides_of([size[axis] for axis in order])
    strides = [0] * len(size)
    for axis, stride in zip(order, nested, strict=True):
        strides[axis] = int(stride * draw.choice([1, 1, 2, -1, -1, 0]))
    for axis in order:
        if sum(abs(s) * (n - 1) for s, n in zip(strides, size, strict=True)) >= count:
            strides[axis] = 0
    low, high = View(0, tuple(strides)).bounds(tuple(size))
    return View(int(draw.integers(-low, count - high)), tuple(strides))


class _Chain:
    """A list of steps under construction."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.steps: list[Step] = []

    def grown(self, x: Tensor, y: Tensor, draw: np.random.Generator) -> Tensor:
        """Apply a random operation to two tensors of one shape; the output has that shape."""
        some = int(draw.integers(0, 1 << 16))
        doings = (
            lambda: self._step(_MAPS[some % len(_MAPS)], x),
            lambda: self._step(Operator.TANH, self._step(_PAIRS[some % len(_PAIRS)], x, y)),
            lambda: self._moved(x, backwards=some % 2 == 0),
            lambda: self._reduced(x, (Operator.REDUCE_MAX, Operator.SUM)[some % 2]),
            lambda: self._chosen(x, y),
            lambda: self._greater(x, y),
            lambda: self._widened(x, _MAPS[some % len(_MAPS)]),
            lambda: self._multiplied(x) if len(x.shape) == 2 else self._joined(x, y),  # noqa: PLR2004
            lambda: self._joined(x, y),
        )
        return doings[draw.integers(0, len(doings))]()

    def _step(self, operator: Operator, *inputs: Tensor, **parameters: Any) -> Tensor:
        made = Tensor(*infer(operator, inputs, parameters))
        self.steps.append(Step(operator, inputs, (made,), parameters, f"node {len(self.steps)}"))
        return made

    def _append(self, step: Step) -> Tensor:
        self.steps.append(step)
        return step.output

    def _constant(self, number: float, shape: Shape) -> Tensor:
        # a broadcast view takes no memory
        return Tensor(shape, self.dtype, np.broadcast_to(self.dtype.type(number), shape))

    def _moved(self, x: Tensor, *, backwards: bool) -> Tensor:
        if not x.size:
            return self._append(_raster([x], x.shape, [], 0))
        if backwards:
            return self._append(flipped(x))
        # rotate: the last third comes first
        third = x.size // 3
        regions = [
            Region((x.size - third,), View(0, (1,)), View(third, (1,))),
            Region((third,), View(x.size - third, (1,)), View(0, (1,))),
        ]
        return self._append(_raster([x], x.shape, regions, None))

    def _spread(self, x: Tensor, shape: Shape) -> Tensor:
        strides = [
            0 if mine == 1 else stride
            for mine, stride in zip(x.shape, strides_of(x.shape), strict=True)
        ]
        regions = [whole(shape, View(0, tuple(strides)))] if prod(shape) else []
        return self._append(_raster([x], shape, regions, None))

    def _reduced(self, x: Tensor, operator: Operator) -> Tensor:
        made = self._step(operator, x, axes=(len(x.shape) - 1,))
        if operator is Operator.SUM:
            made = self._step(
                Operator.MUL, made, self._constant(1 / max(x.shape[-1], 1), made.shape)
            )
        return self._spread(made, x.shape)

    def _chosen(self, x: Tensor, y: Tensor) -> Tensor:
        condition = Tensor(
            x.shape, np.dtype(np.bool_), np.resize([True, False, False], x.shape)
        )  # fmt: skip
        return self._step(Operator.SELECT, condition, x, y)

    def _greater(self, x: Tensor, y: Tensor) -> Tensor:
        # two conditions, with a different element width, live beside the elements
        is_less = self._step(Operator.LESS, x, y)
        chosen = self._step(Operator.SELECT, is_less, y, x)
        other = self._step(Operator.SELECT, self._step(Operator.NOT, is_less), x, y)
        return self._step(Operator.MAXIMUM, chosen, other)

    def _widened(self, x: Tensor, operator: Operator) -> Tensor:
        wide = self._step(Operator.CAST, x, dtype=np.dtype(np.float64))
        return self._step(Operator.CAST, self._step(operator, wide), dtype=self.dtype)

    def _joined(self, x: Tensor, y: Tensor) -> Tensor:
        # the second half of one, the first of the other
        half = x.size // 2
        regions = [
            Region((x.size - half,), View(half, (1,)), View(0, (1,))),
            Region((half,), View(0, (1,)), View(x.size - half, (1,)), 1),
        ]
        return self._append(_raster([x, y], x.shape, regions, None if x.size else 0))

    def _multiplied(self, x: Tensor) -> Tensor:
        rows, columns = x.shape
        # transpose twice, then multiply
        transposed = self._turned(x)
        weight = elements(self.dtype, (rows, rows), rows, special=False) / max(rows, 1)
        made = self._step(
            Operator.MATMUL, Tensor((rows, rows), self.dtype, weight.astype(self.dtype)),
            self._turned(transposed),
        )  # fmt: skip
        assert made.shape == (rows, columns)  # noqa: S101
        return self._step(Operator.TANH, made)

    def _turned(self, x: Tensor) -> Tensor:
        rows, columns = x.shape
        regions = [whole((columns, rows), View(0, (1, columns)))] if x.size else []
        return self._append(_raster([x], (columns, rows), regions, None))


def _raster(inputs: Sequence[Tensor], shape: Shape, regions: Sequence[Region], fill: Any) -> Step:
    parameters = {
        "regions": tuple(each for each in regions if each.count), "shape": shape,
        "dtype": inputs[0].dtype, "fill": fill, "accumulate": False,
    }  # fmt: skip
    output = Tensor(*infer(Operator.RASTER, inputs, parameters))
    return Step(Operator.RASTER, tuple(inputs), (output,), parameters, "moves")
