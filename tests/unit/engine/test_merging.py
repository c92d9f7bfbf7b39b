"""Which rasters merge, and which had better not."""

from itertools import product

import numpy as np

from walle_stream.engine.backends.reference import compute
from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.operators import Operator
from walle_stream.engine.passes.composition import compose
from walle_stream.engine.passes.reading import view_of
from walle_stream.engine.planning.optimise import optimised
from walle_stream.engine.program import Program, Tensor
from walle_stream.engine.region import Region, View, whole

FLOAT = np.dtype(np.float32)


def rasters(builder, x, y):
    steps = optimised(Program([x], [y], builder.steps), compute).steps
    return [step for step in steps if step.operator is Operator.RASTER]


def copies(builder, x, y):
    return [step for step in rasters(builder, x, y) if view_of(step) is None]


def test_a_border_is_moved_once_for_all_taps_of_a_window():
    builder, x = Builder(compute), Tensor((1, 8, 8, 16), FLOAT)
    border = moves.pad(builder, x, (0, 1, 1, 0), (0, 1, 1, 0), 0)
    total = x
    for row, column in product(range(3), range(3)):
        tap = moves.crop(builder, border, (0, row, column, 0), x.shape)
        total = builder.add(total, builder.mul(tap, float(row - 2 * column)))
    assert len(copies(builder, x, total)) == 1


def test_a_border_of_one_reader_is_not_moved_by_itself():
    builder, x = Builder(compute), Tensor((1, 8, 8, 16), FLOAT)
    border = moves.pad(builder, x, (0, 1, 1, 0), (0, 1, 1, 0), 0)
    tap = moves.crop(builder, border, (0, 0, 0, 0), x.shape)
    (copy,) = copies(builder, x, builder.unary(Operator.EXP, tap))
    assert copy.inputs == (x,)
    assert copy.output.shape == x.shape


def test_repetition_reads_through_an_order_that_is_worse_for_it():
    builder, x = Builder(compute), Tensor((1, 4, 4, 32), FLOAT)
    first = moves.transpose(builder, x, (0, 3, 1, 2))
    twice = builder.broadcast(builder.reshape(first, (1, 32, 4, 1, 4, 1)), (1, 32, 4, 2, 4, 2))
    last = moves.transpose(builder, builder.reshape(twice, (1, 32, 8, 8)), (0, 2, 3, 1))
    (only,) = rasters(builder, x, builder.add(last, 1.0))[:1]
    assert only.inputs == (x,)


def test_a_box_that_two_axes_move_along_is_cut_into_few():
    # a border of one column, runs of whole rows: 56 taps two columns apart of 96 channels
    inner = Region((56, 5376), View(0, (5376, 1)), View(5568, (5472, 1)))
    outer = whole((56, 28, 96), View(5472, (5472, 192, 1)))
    found = compose(outer, inner)
    assert sorted(each.size for each in found) == [(56, 27, 96)]
