"""Probabilities of classes from those of pairs of classes, as libsvm computes them.

This is ``multiclass_probability`` of libsvm, algorithm 2 of Wu, Lin and Weng (2004): it repeats
sweeps, which update one class after the other, and ends before the exact minimum is reached.
"""

from itertools import combinations
from typing import Final

import numpy as np

from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.registry import INNER_DOMAIN, Call, Result, Stages, lowers
from walle_stream.engine.lowering.scores import transformed
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.region import Region, View
from walle_stream.engine.rules import FLOAT32, INT64, check_size

SWEEPS_MAX: Final = 100
"""Largest number of sweeps, unless there are more classes."""

ERROR_MAX: Final = 0.005
"""The error below which a row is finished, times the number of classes."""

_BINARY = 2
_LOOP_VERSION = 13


def coupling(builder: Builder, first: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the sweeps start from, for rows in the last axis.

    ``first`` is float64 ``(pairs, N)``: the probability of the first class of each pair. Returns
    the matrix Q ``(classes, classes, N)``, equal probabilities ``(classes, N)``, and the largest
    number of sweeps.
    """
    rows = first.shape[1]
    check_size((classes, classes, rows))
    regions = [
        Region((rows,), View(number * rows, (1,)), View((i * classes + j) * rows, (1,)), source)
        for number, pair in enumerate(combinations(range(classes), 2))
        for source, (i, j) in enumerate((pair, pair[::-1]))
    ]
    won = builder.raster([first, builder.sub(1, first)], (classes, classes, rows), regions, 0)
    lost = moves.transpose(builder, won, (1, 0, 2))
    squares = builder.sum(builder.mul(lost, lost), [1])
    diagonal = builder.mul(squares, builder.constant(np.eye(classes)[:, :, None]))
    matrix = builder.sub(diagonal, builder.mul(lost, won))
    equal = builder.broadcast(builder.constant(1 / classes), (classes, rows))
    return matrix, equal, builder.constant(max(SWEEPS_MAX, classes), INT64)


def coupling_stages(call: Call, names: Array | None) -> Stages:
    """Return the stages of a classifier with these labels: a first one, sweeps, and the end.

    The first one is the operator of the same name in ``INNER_DOMAIN``; it returns the labels and
    the results of ``coupling``.
    """
    matrix, start, trips, middle, end = (
        call.inner_name(name) for name in ("matrix", "start", "trips", "middle", "end")
    )
    (label, scores), given = call.node.outputs[:2], call.node.attributes
    transform = {"post_transform": call.text("post_transform", "NONE")}
    if names is not None and len(names) == _BINARY:
        # two sweeps are always enough: the error is a function of one probability alone
        ways = ((start, middle), (middle, end))
        sweeps = [call.stage("CouplingSweep", (x, matrix), ("", y)) for x, y in ways]
    else:
        sweeps = [_loop(call, matrix, (trips, "", start), end)]
    return Stages(
        call.stage(call.node.operator, call.node.inputs, (label, matrix, start, trips), given),
        *sweeps,
        call.stage("CouplingEnd", (end,), (scores,), transform),
    )


def _loop(call: Call, matrix: str, inputs: tuple[str, str, str], end: str) -> Node:
    number, goes_on, before, again, after = (
        call.inner_name(f"sweep/{name}")
        for name in ("number", "goes_on", "before", "again", "after")
    )
    body = Graph(
        "coupling", dict.fromkeys((number, goes_on, before)), dict.fromkeys((again, after)),
        (call.stage("CouplingSweep", (before, matrix), (again, after)),),
    )  # fmt: skip
    return Node("Loop", inputs, (end,), {"body": body}, call.node.name, version=_LOOP_VERSION)


@lowers("CouplingSweep", domain=INNER_DOMAIN)
def _coupling_sweep(call: Call) -> Result:
    # whether a row is still too far from its minimum, and such rows after an update of each class
    builder, given, matrix = call.builder, call.tensor(0), call.tensor(1)
    classes, rows = given.shape
    products = builder.sum(builder.mul(matrix, given), [1], keep=False)
    square = builder.sum(builder.mul(given, products), [0])
    error = builder.max(builder.abs(builder.sub(products, square)), [0])
    goes_on = builder.less_equal(ERROR_MAX / classes, error)
    # libsvm divides all by the sum after each class; here products stand for themselves times the
    # sum, and squares for themselves times its square, so that only the end divides
    total = builder.broadcast(builder.constant(1.0), (1, rows))
    changes = []
    for number in range(classes):
        row = builder.reshape(
            moves.slice_axis(builder, matrix, 0, number, number + 1), (classes, rows)
        )
        own, old = (moves.slice_axis(builder, x, 0, number, number + 1) for x in (row, products))
        change = builder.div(builder.sub(builder.div(square, total), old), own)
        products = builder.add(products, builder.mul(row, change))
        new = moves.slice_axis(builder, products, 0, number, number + 1)
        square = builder.add(square, builder.mul(change, builder.add(old, new)))
        total = builder.add(total, change)
        changes.append(change)
    swept = builder.div(builder.add(given, moves.concat(builder, changes, 0)), total)
    left = builder.sum(builder.cast(goes_on, INT64), [0, 1], keep=False)
    return builder.less(0, left), builder.select(goes_on, swept, given)


@lowers("CouplingEnd", domain=INNER_DOMAIN)
def _coupling_end(call: Call) -> Result:
    builder = call.builder
    scores = moves.transpose(builder, call.tensor(0), (1, 0))
    return builder.cast(transformed(builder, scores, call.text("post_transform", "NONE")), FLOAT32)
