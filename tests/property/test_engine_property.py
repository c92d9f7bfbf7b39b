"""Any program: the same after every pass, and from every plan, as the reference gives."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from walle_stream.engine.backends import spreading
from walle_stream.engine.backends.reference import Interpreter, addresses, compute
from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.operators import Operator
from walle_stream.engine.passes.composition import compose_all
from walle_stream.engine.planning import loops, weights
from walle_stream.engine.planning.optimise import optimised
from walle_stream.engine.program import Program, Tensor
from walle_stream.engine.region import Region, View, simplified, strides_of, validate_regions, whole
from walle_stream.testing.checked_backend import CheckedBackend
from walle_stream.testing.stages import verify_program

FLOAT = np.dtype(np.float32)
UNARY = (Operator.ABS, Operator.NEG, Operator.TANH, Operator.ERF)
BINARY = (Operator.ADD, Operator.SUB, Operator.MUL, Operator.MAXIMUM)


class RandomProgram:
    """Steps that read whatever was made before."""

    def __init__(self, rng, scale):
        self.rng = rng
        self.builder = Builder(compute)
        self.inputs = [self.new_input(scale) for _ in range(rng.randint(1, 3))]
        self.values = list(self.inputs)
        for _ in range(rng.randint(1, 14)):
            made = rng.choice(
                [
                    self.unary, self.binary, self.reduce, self.move, self.move, self.matmul,
                    self.pair, self.clip, self.weigh,
                ]
            )()  # fmt: skip
            if made is not None and 0 < made.size <= 100_000:
                self.values.append(made)
        count = rng.randint(1, 3)
        self.outputs = list(dict.fromkeys([*rng.choices(self.values, k=count), self.values[-1]]))

    def new_input(self, scale):
        shape = tuple(self.rng.randint(1, scale) for _ in range(self.rng.randint(1, 4)))
        return Tensor(shape, FLOAT, name=f"x{shape}")

    def pick(self):
        return self.rng.choice(self.values[-5:])

    def unary(self):
        return self.builder.unary(self.rng.choice(UNARY), self.pick())

    def binary(self):
        x = self.pick()
        other = self.rng.choice(
            [
                x,
                1.5,
                self.builder.constant(np.float32(self.rng.random() * np.ones(x.shape[-1:]))),
                next((each for each in self.values if each.shape == x.shape), x),
            ]
        )
        return self.builder.binary(self.rng.choice(BINARY), x, other)

    def pair(self):
        x = self.pick()
        if not x.rank:
            return None
        reduced = self.builder.reduce(Operator.REDUCE_MAX, x, [x.rank - 1])
        return self.builder.sub(x, reduced)

    def clip(self):
        low = self.builder.binary(Operator.MAXIMUM, self.pick(), -0.5)
        if self.rng.random() < 0.2:
            self.values.append(low)
        return self.builder.binary(Operator.MINIMUM, low, self.rng.choice([0.75, -1.0, np.inf]))

    def weigh(self):
        x = self.pick()
        if x.rank < 2:
            return None
        weights = np.random.default_rng(x.size).standard_normal((x.shape[-1], 16), np.float32)
        found = self.builder.matmul(x, self.builder.constant(weights))
        bias = self.builder.constant(weights.reshape(-1)[:16].copy())
        return self.builder.binary(Operator.ADD, self.builder.unary(Operator.TANH, found), bias)

    def reduce(self):
        x = self.pick()
        axes = [axis for axis in range(x.rank) if self.rng.random() < 0.4]
        operator = self.rng.choice([Operator.SUM, Operator.REDUCE_MAX])
        return self.builder.reduce(operator, x, axes, keep=self.rng.random() < 0.5)

    def matmul(self):
        x = self.pick()
        if x.rank < 2:
            return None
        order = (*range(x.rank - 2), x.rank - 1, x.rank - 2)
        product = self.builder.matmul(x, moves.transpose(self.builder, x, order))
        return self.builder.unary(Operator.TANH, product)

    def move(self):  # noqa: PLR0911 - one of each kind
        x, rng, b = self.pick(), self.rng, self.builder
        axis = rng.randrange(x.rank) if x.rank else 0
        if not x.rank:
            return b.broadcast(x, (3,))
        kind = rng.randrange(7)
        if kind == 0:
            return moves.transpose(b, x, rng.sample(range(x.rank), x.rank))
        if kind == 1:
            start = rng.randrange(x.shape[axis])
            return moves.slice_axis(b, x, axis, start, x.shape[axis], rng.choice([1, 2]))
        if kind == 2:
            widths = [rng.randint(0, 2) for _ in x.shape]
            return moves.pad(b, x, widths, widths[::-1], np.float32(0.5))
        if kind == 3:
            return moves.flip(b, x, [axis])
        if kind == 4:
            return moves.concat(b, [x, x], axis)
        if kind == 5:
            return b.broadcast(x, (2, *x.shape))
        return b.reshape(x, (x.shape[0], x.size // x.shape[0]))

    def program(self):
        return Program(self.inputs, self.outputs, self.builder.steps)


@pytest.fixture(params=[False, True], ids=["sizes-as-they-are", "sizes-of-a-few-bytes"])
def sizes(request, monkeypatch):
    """Small, so that small tensors are cut into tiles and laid out as large ones are."""
    if request.param:
        monkeypatch.setattr(loops, "TILE_BYTES", 256)
        monkeypatch.setattr(loops, "SIZE_MIN", 4)
        monkeypatch.setattr(spreading, "RUN_MIN", 24)
        monkeypatch.setattr(spreading, "BLOCK_MAX_BYTES", 1024)
        monkeypatch.setattr(weights, "_SIZE_MIN_BYTES", 1)
        monkeypatch.setattr(weights, "_ROW_BYTES", 64)


@pytest.mark.usefixtures("sizes")
@given(seed=st.integers(0, 2**32), scale=st.sampled_from([3, 5, 24]))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_passes_and_plans_keep_what_a_program_gives(seed, scale):
    rng = random.Random(seed)
    program = RandomProgram(rng, scale).program()
    data = np.random.default_rng(seed)
    inputs = [data.standard_normal(each.shape).astype(np.float32) for each in program.inputs]
    verify_program(program)
    wanted = Interpreter().plan(program).run(inputs)
    better = optimised(program, compute, verify_program)
    assert sum(map(len, [better.steps])) <= 3 * len(program.steps) + 3
    plan = CheckedBackend().plan(program)
    for found in (Interpreter().plan(better).run(inputs), plan.run(inputs), plan.run(inputs)):
        for mine, theirs in zip(found, wanted, strict=True):
            assert mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


MOVES = ("order", "crop", "step", "pad", "spread", "turn", "reshape", "twice", "window")


def random_raster(rng, shape):  # noqa: PLR0911 - one of each kind
    """Shape, regions and fill of a raster of one tensor."""
    own, kind = strides_of(shape), rng.choice(MOVES)
    axis = rng.randrange(len(shape))
    if kind == "order":
        order = rng.sample(range(len(shape)), len(shape))
        out = tuple(shape[each] for each in order)
        return out, [whole(out, View(0, tuple(own[each] for each in order)))], None
    if kind in {"crop", "step"}:
        steps = [rng.choice([1, 2]) if kind == "step" else 1 for _ in shape]
        starts = [rng.randrange(size) for size in shape]
        out = tuple(
            rng.randint(1, len(range(start, size, step)))
            for size, start, step in zip(shape, starts, steps, strict=True)
        )
        offset = sum(start * stride for start, stride in zip(starts, own, strict=True))
        view = View(offset, tuple(a * b for a, b in zip(own, steps, strict=True)))
        return out, [whole(out, view)], None
    if kind == "turn":
        strides = tuple(-each if number == axis else each for number, each in enumerate(own))
        return shape, [whole(shape, View((shape[axis] - 1) * own[axis], strides))], None
    if kind == "spread":
        out = (*shape[:axis], rng.randint(2, 3), *shape[axis:])
        return out, [whole(out, View(0, (*own[:axis], 0, *own[axis:])))], None
    if kind == "reshape":
        count = int(np.prod(shape))
        first = rng.choice([each for each in range(1, count + 1) if count % each == 0])
        return (first, count // first), [Region((count,), View(0, (1,)), View(0, (1,)))], None
    if kind == "pad":
        before = [rng.randint(0, 2) for _ in shape]
        out = tuple(a + size + rng.randint(0, 2) for a, size in zip(before, shape, strict=True))
        target = strides_of(out)
        offset = sum(a * stride for a, stride in zip(before, target, strict=True))
        return out, [Region(shape, View(0, own), View(offset, target))], 7
    if kind == "twice":
        out = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
        target = strides_of(out)
        return (
            out,
            [
                Region(shape, View(0, own), View(number * shape[axis] * target[axis], target))
                for number in range(2)
            ],
            None,
        )
    width, step = rng.randint(1, shape[axis]), rng.choice([1, 2])
    count = (shape[axis] - width) // step + 1
    out = (*shape[:axis], count, width, *shape[axis + 1 :])
    strides = (*own[:axis], own[axis] * step, own[axis], *own[axis + 1 :])
    return out, [whole(out, View(0, strides))], None


def brute_force(x, shape, regions, fill):
    output = np.full(int(np.prod(shape)), -1 if fill is None else fill)
    for region in regions:
        read = x.reshape(-1)[addresses(region, region.source)]
        output[addresses(region, region.destination)] = read
    return output.reshape(shape)


@pytest.mark.parametrize("is_simplified", [False, True])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=400)
def test_two_rasters_in_one_move_what_both_move(is_simplified, seed):
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
    x = np.arange(100, 100 + int(np.prod(shape))).reshape(shape)
    between, inner, inner_fill = random_raster(rng, shape)
    out, outer, outer_fill = random_raster(rng, between)
    wanted = brute_force(brute_force(x, between, inner, inner_fill), out, outer, outer_fill)
    if is_simplified:
        inner = [simplified(each) for each in inner]
    regions = []
    for each in outer:
        found = compose_all(each, inner, is_covered=inner_fill is None)
        if found is None:
            return
        regions += found
    validate_regions(regions, [shape], out)
    fill = outer_fill if inner_fill is None else inner_fill
    np.testing.assert_array_equal(brute_force(x, out, regions, fill), wanted)
