"""Trees as tables, and the descent through all of them at once.

A row of the tables is a node or a leaf. A leaf leads to itself, so every observation can take the
same number of steps in every tree: the depth of the deepest one.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from walle_stream.engine.lowering.addressing import flat_take
from walle_stream.engine.lowering.builder import Builder
from walle_stream.engine.lowering.lookups import taken
from walle_stream.engine.operators import Operator
from walle_stream.engine.program import Array, Tensor
from walle_stream.engine.rules import INT64, check_size
from walle_stream.errors import LoweringError, ShapeError

MODES: Final = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""Comparisons, in the order of their numbers in ``TreeEnsemble``."""

_DEPTH_MAX: Final = 1 << 12
_VISITS_MAX: Final = 64
_MEMBER: Final = MODES.index("MEMBER")


@dataclass(frozen=True, slots=True)
class Forest:
    """Tables of all trees; each has a row for each node and leaf."""

    roots: Array
    """Row of each tree's first node."""
    features: Array
    splits: Array
    modes: Array
    """Index in ``MODES``; -1 for a leaf."""
    children: Array
    """``(rows, 2)``: the next row if the comparison is false, and if it is true."""
    missing: Array
    """Whether a nan counts as true."""
    members: Array
    """``(rows, most)``: the set of values for ``MEMBER``, padded with nan."""

    @property
    def depth(self) -> int:
        """Steps from a root to the deepest leaf.

        Raises:
            LoweringError: A tree is too deep, or a node leads back to itself.
        """
        rows, depth, visits = np.unique(self.roots), 0, 0
        while rows.size and (self.modes[rows] >= 0).any():
            visits += rows.size
            if depth >= _DEPTH_MAX or visits > _VISITS_MAX * len(self.modes):
                raise LoweringError(
                    f"a tree is deeper than {_DEPTH_MAX}, or leads back to an earlier node"
                )
            inner = rows[self.modes[rows] >= 0]
            rows, depth = np.unique(self.children[inner]), depth + 1
        return depth


def descend(builder: Builder, x: Tensor, forest: Forest) -> Tensor:
    """Find the leaf that each observation ``(N, F)`` reaches in each tree: int64 ``(N, trees)``.

    Raises:
        ShapeError: A tree asks for a feature that does not exist.
    """
    rows, features = x.shape
    used = forest.features[forest.modes >= 0]
    if used.size and not (used.min() >= 0 and used.max() < features):
        raise ShapeError(f"trees use features {used.min()} to {used.max()} of {features}")
    shape = check_size((rows, len(forest.roots)))
    depth = forest.depth
    leaves = builder.broadcast(builder.constant(forest.roots.astype(np.int64)), shape)
    if not depth or not rows:
        return leaves
    begins = builder.constant(np.arange(rows, dtype=np.int64).reshape(rows, 1) * features)
    modes = np.unique(forest.modes[forest.modes >= 0]).tolist()
    for _ in range(depth):
        address = builder.add(taken(builder, forest.features, leaves), begins)
        is_true = _compared(builder, forest, modes, leaves, flat_take(builder, x, address))
        row = builder.add(builder.mul(leaves, 2), builder.cast(is_true, INT64))
        leaves = taken(builder, forest.children.reshape(-1).astype(np.int64), row)
    return leaves


def _compared(
    builder: Builder, forest: Forest, modes: list[int], rows: Tensor, values: Tensor
) -> Tensor:
    # emits one comparison per mode in use, and reads only tables that a node needs
    splits = taken(builder, forest.splits.astype(values.dtype), rows)

    def by(number: int) -> Tensor:
        if number == _MEMBER:
            return _is_member(builder, forest, rows, values)
        mode = MODES[number]
        if mode == "NEQ":
            # a nan must not make the comparison true
            return builder.logical_or(builder.less(values, splits), builder.less(splits, values))
        pair = (splits, values) if mode in {"GTE", "GT"} else (values, splits)
        operator = {
            "LEQ": Operator.LESS_EQUAL, "GTE": Operator.LESS_EQUAL,
            "LT": Operator.LESS, "GT": Operator.LESS,
        }.get(mode, Operator.EQUAL)  # fmt: skip
        return builder.binary(operator, *pair)

    first, *others = modes
    result = by(first)
    if others:
        mode = taken(builder, forest.modes.astype(np.int64), rows)
    for number in others:
        result = builder.select(builder.equal(mode, number), by(number), result)
    if not forest.missing[forest.modes >= 0].any():
        return result
    tracked = taken(builder, forest.missing.astype(np.bool_), rows)
    return builder.logical_or(result, builder.logical_and(tracked, builder.is_nan(values)))


def _is_member(builder: Builder, forest: Forest, rows: Tensor, values: Tensor) -> Tensor:
    members = forest.members.astype(values.dtype)
    check_size((*rows.shape, members.shape[1]))
    listed = taken(builder, members, rows)
    matches = builder.equal(listed, builder.reshape(values, (*values.shape, 1)))
    return builder.max(matches, [values.rank], keep=False)
