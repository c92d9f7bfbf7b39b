"""Ensembles of trees of the domain ai.onnx.ml."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from walle_stream.engine.lowering import moves
from walle_stream.engine.lowering.addressing import put
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.features import ML, floats, reals
from walle_stream.engine.lowering.forests import MODES, Forest, descend
from walle_stream.engine.lowering.lookups import taken
from walle_stream.engine.lowering.precision import require_floating
from walle_stream.engine.lowering.registry import Call, Result, lowers
from walle_stream.engine.lowering.scores import (
    TRANSFORMS,
    as_matrix,
    both_sides,
    greatest,
    labelled,
    labelled_by_sign,
    labels,
    transformed,
)
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import FLOAT32, TEXT, check_size
from walle_stream.errors import DTypeError, LoweringError, ShapeError

_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")
_BINARY = 2


@dataclass(frozen=True, slots=True)
class _Votes:
    """Votes of the leaves; every row has as many slots as the row with the most votes."""

    targets: Array
    """``(rows, slots)``; an unused slot has ``count``."""
    weights: Array
    count: int
    """Number of targets."""


@lowers("TreeEnsembleRegressor", domain=ML)
def _tree_ensemble_regressor(call: Call) -> Result:
    builder, (forest, row_of) = call.builder, _forest(call)
    x = _compared(call, forest, floats(call))
    count = call.number("n_targets", 1)
    votes = _votes(call, row_of, "target", count)
    aggregate = call.text("aggregate_function", "SUM")
    scores = _aggregated(builder, descend(builder, x, forest), votes, aggregate)
    scores = _based(call, scores, count)
    result = transformed(builder, scores, call.text("post_transform", "NONE"))
    return builder.cast(result, FLOAT32)


@lowers("TreeEnsembleClassifier", domain=ML)
def _tree_ensemble_classifier(call: Call) -> Result:
    builder, (forest, row_of) = call.builder, _forest(call)
    x = _compared(call, forest, floats(call))
    names, transform = labels(call, "classlabels_int64s"), call.text("post_transform", "NONE")
    if names is None:
        raise LoweringError("one of classlabels_int64s and classlabels_strings must be given")
    votes = _votes(call, row_of, "class", len(names))
    voted = {*votes.targets.reshape(-1).tolist()} - {votes.count}
    if len(names) <= _BINARY and len(voted) <= 1:
        return _binary(call, x, forest, votes, names)
    scores = _aggregated(builder, descend(builder, x, forest), votes, "SUM")
    scores = _based(call, scores, len(names))
    result = transformed(builder, scores, transform)
    return labelled(builder, greatest(builder, scores), names), builder.cast(result, FLOAT32)


def _binary(
    call: Call, x: Tensor, forest: Forest, votes: _Votes, names: Array
) -> tuple[Tensor, Tensor]:
    # all votes are for one class, so the score is its distance from the other class
    builder, transform = call.builder, call.text("post_transform", "NONE")
    merged = _Votes((votes.targets == votes.count).astype(np.int64), votes.weights, 1)
    scores = _aggregated(builder, descend(builder, x, forest), merged, "SUM")
    base = _doubles(call, "base_values")
    if len(base):
        added = _base(base, min(len(base), len(names)))[-1]
        scores = builder.add(scores, float(added))
    if len(names) == 1:
        label = labelled_by_sign(builder, scores, names, 0.0, inclusive=False)
        return label, builder.cast(transformed(builder, scores, transform), FLOAT32)
    # scores that are never negative are probabilities, unless the transform makes them so
    is_share = transform == "PROBIT" or (transform == "NONE" and votes.weights.min(initial=0) >= 0)
    is_second = builder.less(0.5 if is_share else 0, builder.reshape(scores, scores.shape[:1]))
    label = labelled(builder, builder.cast(is_second, "int64"), names)
    sides = both_sides(builder, scores, complement=is_share)
    return label, builder.cast(transformed(builder, sides, transform), FLOAT32)


@lowers("TreeEnsemble", domain=ML)
def _tree_ensemble(call: Call) -> Result:
    builder, features = call.builder, require_floating(call.tensor(0))
    count = call.number("n_targets", 1)
    forest, leaf_rows = _nodes_and_leaves(call)
    x = _compared(call, forest, floats(call))
    targets, weights = _ints(call, "leaf_targetids"), _tensor(call, "leaf_weights")
    if not len(targets) == len(weights) > 0:
        raise ShapeError(f"{len(targets)} leaf_targetids and {len(weights)} leaf_weights")
    if len(targets) and not (targets.min() >= 0 and targets.max() < count):
        raise ShapeError(f"leaf_targetids are not all in 0 .. {count - 1}")
    rows = len(forest.modes)
    table = np.full((rows, 1), count, np.int64)
    amounts = np.zeros((rows, 1), np.float64)
    table[leaf_rows, 0], amounts[leaf_rows, 0] = targets, weights
    aggregate, transform = call.number("aggregate_function", 1), call.number("post_transform", 0)
    if not (0 <= aggregate < len(_AGGREGATES) and 0 <= transform < len(TRANSFORMS)):
        raise LoweringError(f"aggregate_function {aggregate} or post_transform {transform}")
    votes = _Votes(table, amounts.astype(x.dtype), count)
    scores = _aggregated(builder, descend(builder, x, forest), votes, _AGGREGATES[aggregate])
    return builder.cast(transformed(builder, scores, TRANSFORMS[transform]), features.dtype)


def _compared(call: Call, forest: Forest, x: Tensor) -> Tensor:
    # float64 splits are not rounded; the features are widened instead
    matrix = as_matrix(call, x)
    return call.builder.cast(matrix, "float64") if forest.splits.dtype == np.float64 else matrix


def _aggregated(builder: Builder, leaves: Tensor, votes: _Votes, aggregate: str) -> Tensor:
    # (N, targets); a target without votes has 0
    if aggregate not in _AGGREGATES:
        raise LoweringError(f"aggregate_function {aggregate!r} is not one of {_AGGREGATES}")
    rows, trees = leaves.shape
    count, slots = votes.count, votes.targets.shape[1]
    check_size((rows, trees, slots))
    check_size((rows, count + 1))
    weights = taken(builder, votes.weights, leaves)
    if count == slots == 1 and aggregate in {"SUM", "AVERAGE"}:
        total = builder.reshape(builder.sum(weights, [1]), (rows, 1))
    else:
        total = _collected(builder, leaves, weights, votes, aggregate)
    return builder.div(total, trees) if aggregate == "AVERAGE" else total


def _collected(
    builder: Builder, leaves: Tensor, weights: Tensor, votes: _Votes, aggregate: str
) -> Tensor:
    rows, width = leaves.shape[0], votes.count + 1
    begins = builder.constant(np.arange(rows, dtype=np.int64).reshape(rows, 1, 1) * width)
    address = builder.add(taken(builder, votes.targets.astype(np.int64), leaves), begins)
    reduction = {"MIN": "minimum", "MAX": "maximum"}.get(aggregate, "add")
    first = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    begin = builder.broadcast(builder.as_tensor(first, weights), (rows * width, 1))
    result = put(builder, begin, address, weights, reduction)
    if reduction != "add":
        empty = builder.broadcast(builder.constant(np.zeros((), np.bool_)), begin.shape)
        ones = builder.broadcast(builder.constant(np.ones((), np.bool_)), (address.size, 1))
        result = builder.select(put(builder, empty, address, ones), result, 0)
    return moves.slice_axis(builder, builder.reshape(result, (rows, width)), 1, 0, votes.count)


def _forest(call: Call) -> tuple[Forest, dict[tuple[int, int], int]]:
    # the older operators have nodes by tree and number, with leaves among them
    trees, nodes = _ints(call, "nodes_treeids"), _ints(call, "nodes_nodeids")
    modes = call.texts("nodes_modes") or ()
    count = len(trees)
    features = _ints(call, "nodes_featureids")
    children = [_ints(call, f"nodes_{side}nodeids") for side in ("false", "true")]
    splits = _doubles(call, "nodes_values")
    missing = _missing(call, count)
    lengths = [len(modes), *map(len, (nodes, features, *children, splits))]
    if not count or any(length != count for length in lengths):
        raise ShapeError(f"the attributes nodes_* are not all of {count} nodes")
    row_of = {key: row for row, key in enumerate(zip(trees.tolist(), nodes.tolist(), strict=True))}
    if len(row_of) != count:
        raise LoweringError("a tree has two nodes with one number")
    known = {f"BRANCH_{mode}": number for number, mode in enumerate(MODES)} | {"LEAF": -1}
    wrong = {*modes} - known.keys()
    if wrong:
        raise LoweringError(f"nodes_modes {sorted(wrong)} are none of {', '.join(known)}")
    numbers = np.array([known[mode] for mode in modes], np.int64)
    table = np.repeat(np.arange(count)[:, None], 2, axis=1)
    for row in np.flatnonzero(numbers >= 0).tolist():
        for side in (0, 1):
            child = row_of.get((int(trees[row]), int(children[side][row])))
            if child is None:
                raise LoweringError(f"tree {trees[row]} has no node {children[side][row]}")
            table[row, side] = child
    _, roots = np.unique(trees, return_index=True)
    features = np.where(numbers >= 0, features, 0)
    nothing = np.full((count, 1), np.nan)
    return Forest(roots, features, splits, numbers, table, missing, nothing), row_of


def _votes(call: Call, row_of: dict[tuple[int, int], int], what: str, count: int) -> _Votes:
    trees, nodes = _ints(call, f"{what}_treeids"), _ints(call, f"{what}_nodeids")
    targets, weights = _ints(call, f"{what}_ids"), _doubles(call, f"{what}_weights")
    if not len(trees) == len(nodes) == len(targets) == len(weights):
        raise ShapeError(f"the attributes {what}_* differ in length")
    if count < 1 or (len(targets) and not (targets.min() >= 0 and targets.max() < count)):
        raise ShapeError(f"{what}_ids are not all in 0 .. {count - 1}")
    rows: list[list[int]] = [[] for _ in range(len(row_of))]
    for number, key in enumerate(zip(trees.tolist(), nodes.tolist(), strict=True)):
        if key not in row_of:
            raise LoweringError(f"{what}_nodeids: tree {key[0]} has no node {key[1]}")
        rows[row_of[key]].append(number)
    shape = (len(rows), max(1, *map(len, rows), 1))
    check_size(shape)
    table, amounts = np.full(shape, count, np.int64), np.zeros(shape, weights.dtype)
    for row, numbers in enumerate(rows):
        table[row, : len(numbers)] = targets[numbers]
        amounts[row, : len(numbers)] = weights[numbers]
    return _Votes(table, amounts, count)


def _nodes_and_leaves(call: Call) -> tuple[Forest, Array]:
    # TreeEnsemble has separate leaves; their rows follow the nodes
    features, modes = _ints(call, "nodes_featureids"), _tensor(call, "nodes_modes")
    if modes.dtype.kind not in "iu":
        raise DTypeError(f"nodes_modes must be whole numbers, not {modes.dtype.name}")
    splits, count, modes = _tensor(call, "nodes_splits"), len(features), modes.astype(np.int64)
    leaves = len(_ints(call, "leaf_targetids"))
    columns = []
    for side in ("false", "true"):
        numbers, are_leaves = _ints(call, f"nodes_{side}nodeids"), _ints(call, f"nodes_{side}leafs")
        if not len(numbers) == len(are_leaves) == len(modes) == len(splits) == count:
            raise ShapeError(f"the attributes nodes_* are not all of {count} nodes")
        limits = np.where(are_leaves != 0, leaves, count)
        if ((numbers < 0) | (numbers >= limits)).any():
            raise ShapeError(f"nodes_{side}nodeids name a missing node or leaf")
        columns.append(np.where(are_leaves != 0, numbers + count, numbers))
    roots = _ints(call, "tree_roots")
    if not roots.size or ((roots < 0) | (roots >= count)).any():
        raise ShapeError(f"tree_roots are empty, or not all in 0 .. {count - 1}")
    if ((modes < 0) | (modes >= len(MODES))).any():
        raise LoweringError(f"nodes_modes are not all in 0 .. {len(MODES) - 1}")
    own = np.arange(count, count + leaves)
    children = np.concatenate([np.stack(columns, 1), np.stack([own, own], 1)])
    behind = np.zeros(leaves, splits.dtype)
    missing = np.append(_missing(call, count), np.zeros(leaves, np.bool_))
    members = _members(call, modes, count + leaves)
    modes = np.append(modes, np.full(leaves, -1))
    features, splits = np.append(features, np.zeros(leaves, np.int64)), np.append(splits, behind)
    return Forest(roots, features, splits, modes, children, missing, members), own


def _members(call: Call, modes: Array, rows: int) -> Array:
    nodes = np.flatnonzero(modes == MODES.index("MEMBER"))
    value = call.attribute("membership_values")
    flat = np.zeros(0) if value is None else _tensor(call, "membership_values").astype(np.float64)
    ends = np.flatnonzero(np.isnan(flat))
    # the last set may lack its closing nan
    if flat.size and (not ends.size or ends[-1] != flat.size - 1):
        ends = np.append(ends, flat.size)
    if len(ends) != len(nodes):
        raise ShapeError(f"{len(ends)} sets of membership_values for {len(nodes)} nodes")
    begins = [0, *(ends[:-1] + 1).tolist()]
    most = max((end - begin for begin, end in zip(begins, ends.tolist(), strict=False)), default=0)
    table = np.full(check_size((rows, max(most, 1))), np.nan)
    for row, begin, end in zip(nodes.tolist(), begins, ends.tolist(), strict=False):
        table[row, : end - begin] = flat[begin:end]
    return table


def _missing(call: Call, count: int) -> Array:
    value = _ints(call, "nodes_missing_value_tracks_true")
    if len(value) not in {0, count}:
        raise ShapeError(f"{len(value)} nodes_missing_value_tracks_true of {count} nodes")
    return value != 0 if len(value) else np.zeros(count, np.bool_)


def _based(call: Call, scores: Tensor, count: int) -> Tensor:
    base = _doubles(call, "base_values")
    if not len(base):
        return scores
    added = call.builder.constant(_base(base, count).astype(scores.dtype))
    return call.builder.add(scores, added)


def _base(base: Array, count: int) -> Array:
    if len(base) not in {1, count}:
        raise ShapeError(f"{len(base)} base_values of {count} scores")
    return base


def _ints(call: Call, name: str) -> Array:
    return np.array(call.list(name) or (), np.int64)


def _doubles(call: Call, name: str) -> Array:
    # float32, or the dtype of the tensor that replaces the list
    if call.attribute(f"{name}_as_tensor") is None:
        return reals(call, name)
    return _tensor(call, f"{name}_as_tensor")


def _tensor(call: Call, name: str) -> Array:
    value: Any = call.attribute(name)
    if not isinstance(value, np.ndarray) or value.dtype == TEXT:
        raise LoweringError(f"attribute {name!r} must be a tensor of numbers, not {value!r}")
    return value.reshape(-1)
