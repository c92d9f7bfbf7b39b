"""The rows of one task, made of its releases when a class of devices needs them."""

from typing import Final, NamedTuple

from walle_deploy.model.receipts import Group as Side
from walle_deploy.model.releases import ActiveRelease
from walle_deploy.policy.hashing import MASK
from walle_deploy.policy.rows import Candidate, Choices, Guarded, Names, Offer, Row, Standing
from walle_deploy.policy.specialising import (
    Outcomes,
    can_hold,
    guard_of,
    specialise,
    static_leaves,
    test_of,
)
from walle_deploy.policy.tree import Node, Static

_ROWS_MAX: Final = 256
"""Of a task; what its policies tell apart is mostly a handful."""


class CompiledRelease(NamedTuple):
    """A release, and the tree of its policy."""

    release: ActiveRelease
    code: Static | None
    """Whether the device can run it; None: any can."""
    node: Node
    key: int
    limit: int
    group: Side = ""
    """Of those whom it takes in."""


class TaskRows:
    """The releases of one task, and its rows by what its policies ask of a class."""

    def __init__(self, name: str, compiled: list[CompiledRelease], names: Names) -> None:
        """Build no row yet; ``names`` learns whom they name."""
        self._name = name
        self._names = names
        self._compiled = compiled
        leaves = {leaf: None for item in compiled for leaf in static_leaves(item.node)}
        leaves |= {item.code: None for item in compiled if item.code is not None}
        self._leaves = tuple(leaves)
        self._rows: dict[tuple[bool | None, ...], Guarded] = {}

    def row(self, outcomes: Outcomes) -> Guarded:
        """Return its row for a class."""
        key = tuple([outcomes[field][number] for field, number in self._leaves])
        try:
            return self._rows[key]
        except KeyError:
            if len(self._rows) >= _ROWS_MAX:
                self._rows.clear()
            result = self._rows[key] = self._build_row(outcomes)
            return result

    def _build_row(self, outcomes: Outcomes) -> Guarded:
        opened, every = [], []
        unfit: dict[str, None] = {}
        for item in self._compiled:
            node = specialise(item.node, outcomes)
            if item.limit < 0 or not can_hold(node):
                continue
            if item.code is not None and outcomes[item.code.field][item.code.number] is False:
                unfit[item.release.release_id] = None
                continue
            guard = guard_of(node)
            test = None if node is True else test_of(node)
            release = item.release
            is_watched = release.is_watched
            candidate = Candidate(
                item.key,
                item.limit,
                test,
                Offer(self._name, release.version, release.release_id),
                Standing(release.release_id, item.group) if is_watched else Standing(),
                release.before if is_watched and item.group else "",
            )
            every.append(candidate)
            if guard is not None:
                self._names.add(self._name, guard)
                continue
            opened.append(candidate)
            if test is None and item.limit == MASK:
                break  # takes everybody: nobody behind it is asked
        is_watched = any(candidate.standing.release_id for candidate in every)
        if not every:
            return Guarded(None, tuple(unfit))
        row = Row(self._name, Choices.of(opened), Choices.of(every), is_watched)
        return Guarded(row, tuple(unfit))
