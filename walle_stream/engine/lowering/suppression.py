"""Non-maximum suppression: the greedy choice of boxes, for all batches and classes at once.

Each step takes the best remaining box of every class and removes all boxes that overlap it. A few
steps are unrolled; many steps are a loop, which ends when no class has a box left.
"""

from typing import Final

import numpy as np

from walle_stream.engine.graph import Graph, Node
from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import flat_take, take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.registry import INNER_DOMAIN, Call, Result, Stages, lowers
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Tensor
from walle_stream.engine.rules import BOOL, is_floating
from walle_stream.errors import DTypeError, ShapeError

STEPS_UNROLLED: Final = 256
"""Largest number of unrolled steps; more steps become a loop, which bounds the program."""

PAIRS_MAX: Final = 1 << 24
"""Largest number of pairs of boxes whose overlaps are computed in advance."""

_CORNERS: Final = 4
_LOOP_VERSION: Final = 13


@lowers("NonMaxSuppression")
def _non_max_suppression(call: Call) -> Result:
    boxes, scores = call.tensor(0), call.tensor(1)
    # (batch, box, corner) and (batch, class, box)
    if scores.rank != 3 or boxes.shape != (*scores.shape[::2], _CORNERS):  # noqa: PLR2004
        raise ShapeError(f"boxes {list(boxes.shape)} with scores {list(scores.shape)}")
    if not is_floating(boxes.dtype) or scores.dtype != boxes.dtype:
        raise DTypeError(f"boxes of {boxes.dtype.name} with scores of {scores.dtype.name}")
    limits = call.numbers(2) or (0,)
    steps = min(max(limits[0], 0), boxes.shape[1])
    if not steps or not scores.size:
        return call.builder.constant(np.zeros((0, 3), np.int64))
    inputs = call.node.inputs
    left, known, best, valid, positions = (
        call.inner_name(name) for name in ("left", "known", "best", "valid", "places")
    )
    threshold = inputs[3] if call.has(3) else ""
    least = inputs[4] if call.has(4) else ""
    state, chosen = (left, known, threshold), (best, valid)
    if steps <= STEPS_UNROLLED:
        choice = [call.stage("SuppressionSteps", state, chosen, {"steps": steps})]
    else:
        choice = _loop(call, steps, state, chosen)
    return Stages(
        call.stage("SuppressionStart", (*inputs[:2], threshold, least), (left, known),
                   call.node.attributes),
        *choice,
        call.stage("SuppressionPlaces", (valid,), (positions,)),
        call.stage("SuppressionResult", (best, positions), call.node.outputs[:1]),
    )  # fmt: skip


def _loop(
    call: Call, steps: int, state: tuple[str, str, str], outputs: tuple[str, str]
) -> list[Node]:
    trips, left = call.inner_name("trips"), call.inner_name("left_at_end")
    inner = {name: call.inner_name(f"step/{name}") for name in (
        "number", "goes_on", "left", "next", "left_next", "best", "valid",
    )}  # fmt: skip
    made_in_step = tuple(inner[name] for name in ("next", "left_next", "best", "valid"))
    body = Graph(
        "suppression",
        {inner[name]: None for name in ("number", "goes_on", "left")},
        dict.fromkeys(made_in_step),
        (call.stage("SuppressionStep", (inner["left"], *state[1:]), made_in_step),),
    )
    return [
        Node("Constant", (), (trips,), {"value": np.array(steps)}, version=_LOOP_VERSION),
        Node("Loop", (trips, "", state[0]), (left, *outputs), {"body": body}, call.node.name,
             version=_LOOP_VERSION),
    ]  # fmt: skip


@lowers("SuppressionStart", domain=INNER_DOMAIN)
def _start(call: Call) -> Result:
    # remaining scores, and data of the boxes: corners and areas, or all overlaps
    boxes, scores, builder = call.tensor(0), call.tensor(1), call.builder
    least = _scalar(call, 3, scores, -np.inf)
    kept = builder.less_equal(least, scores)
    left = builder.select(kept, scores, -np.inf)
    parts = moves.unjoined(builder, boxes, 2)
    if call.number("center_point_box", 0):
        x, y, width, height = parts
        half_width, half_height = builder.div(width, 2), builder.div(height, 2)
        low = [builder.sub(y, half_height), builder.sub(x, half_width)]
        high = [builder.add(y, half_height), builder.add(x, half_width)]
    else:
        low = [*map(builder.minimum, parts[:2], parts[2:])]
        high = [*map(builder.maximum, parts[:2], parts[2:])]
    area = builder.mul(builder.sub(high[0], low[0]), builder.sub(high[1], low[1]))
    known = moves.concat(builder, [*low, *high, area], 2)
    batches, count = boxes.shape[:2]
    if batches * count * count <= PAIRS_MAX:
        own = builder.constant(np.eye(count, dtype=BOOL))
        overlaps = _overlaps(builder, known, known, _scalar(call, 2, scores, 0.0))
        known = builder.logical_or(overlaps, own)
    return left, known


def _scalar(call: Call, number: int, like: Tensor, default: float) -> Tensor:
    if call.has(number):
        return call.scalar(number, like.dtype)
    return call.builder.as_tensor(default, like)


def _overlaps(builder: Builder, first: Tensor, second: Tensor, threshold: Tensor) -> Tensor:
    # whether the intersection over union of boxes (batch, n, 5) and (batch, m, 5) is above the
    # threshold, as (batch, n, m)
    rows = moves.unjoined(builder, first, 2)
    columns = [
        moves.transpose(builder, column, (0, 2, 1)) for column in moves.unjoined(builder, second, 2)
    ]
    sides = []
    for axis in range(2):
        low = builder.maximum(rows[axis], columns[axis])
        high = builder.minimum(rows[axis + 2], columns[axis + 2])
        sides.append(builder.maximum(builder.sub(high, low), 0))
    common = builder.mul(*sides)
    union = builder.sub(builder.add(rows[4], columns[4]), common)
    # two boxes without area give 0 / 0, which is never above a threshold
    return builder.less(threshold, builder.div(common, union))


@lowers("SuppressionSteps", domain=INNER_DOMAIN)
def _steps(call: Call) -> Result:
    left, known, builder = call.tensor(0), call.tensor(1), call.builder
    threshold = _scalar(call, 2, left, 0.0)
    best, valid = [], []
    for _ in range(call.number("steps")):
        left, one, is_one = _step(builder, left, known, threshold)
        best.append(one)
        valid.append(is_one)
    return moves.stack(builder, best, 0), moves.stack(builder, valid, 0)


@lowers("SuppressionStep", domain=INNER_DOMAIN)
def _one_step(call: Call) -> Result:
    left, known, builder = call.tensor(0), call.tensor(1), call.builder
    left, best, valid = _step(builder, left, known, _scalar(call, 2, left, 0.0))
    goes_on = builder.max(valid, (0, 1), keep=False)
    return goes_on, left, best, valid


def _step(
    builder: Builder, left: Tensor, known: Tensor, threshold: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    batches, classes, count = left.shape
    best = builder.emit(Operator.ARG_MAX, left, axis=2)
    valid = builder.less(-np.inf, builder.max(left, (2,)))
    rows = builder.add(best, builder.constant(np.arange(batches).reshape(-1, 1, 1) * count))
    lines = builder.reshape(known, (batches * count, known.shape[2]))
    taken = take(builder, lines, builder.reshape(rows, (batches, classes)))
    if known.dtype == BOOL:
        struck = taken
    else:
        own = builder.equal(best, builder.constant(np.arange(count)))
        struck = builder.logical_or(_overlaps(builder, taken, known, threshold), own)
    next_left = builder.select(struck, -np.inf, left)
    shape = (batches, classes)
    return next_left, builder.reshape(best, shape), builder.reshape(valid, shape)


@lowers("SuppressionPlaces", domain=INNER_DOMAIN)
def _positions(call: Call) -> Result:
    valid, builder = call.tensor(0), call.builder
    return builder.emit(Operator.NONZERO, moves.transpose(builder, valid, (1, 2, 0)))


@lowers("SuppressionResult", domain=INNER_DOMAIN)
def _result(call: Call) -> Result:
    best, positions, builder = call.tensor(0), call.tensor(1), call.builder
    steps, _, classes = best.shape
    chosen = flat_take(builder, moves.transpose(builder, best, (1, 2, 0)), positions)
    row = builder.div(positions, steps)
    columns = [builder.div(row, classes), builder.mod(row, classes), chosen]
    return moves.stack(builder, columns, 1)
