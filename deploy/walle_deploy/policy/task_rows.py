"""The rows of one task, which are made of its releases when a class of devices needs them.

``_specialise`` puts a class's answers into the static leaves of a policy's tree. A small test of
single devices remains, or often nothing at all.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from walle_deploy.model.receipts import Group as Side
from walle_deploy.model.releases import ActiveRelease
from walle_deploy.policy.facts import Facts
from walle_deploy.policy.hashing import MASK
from walle_deploy.policy.rows import Candidate, Choices, Guarded, Names, Offer, Row, Standing
from walle_deploy.policy.tree import Dynamic, Group, Guard, Node, Not, Static, Test
from walle_deploy.policy.truth import Truth, all_of, any_of, negated

_ROWS_MAX: Final = 256
"""Most rows of a task; its policies mostly distinguish only a handful."""

type Outcomes = tuple[tuple[Truth, ...], ...]
"""Results of the tests for a class, for each field of ``compiling.FIELDS``."""


class CompiledRelease(NamedTuple):
    """A release with the tree of its policy."""

    release: ActiveRelease
    code: Static | None
    """Test whether the device can run the version; None if every device can."""
    node: Node
    key: int
    limit: int
    group: Side = ""
    """Group of the devices that this release admits."""


class TaskRows:
    """The releases of one task, with rows by the results of their tests for a class."""

    def __init__(self, name: str, compiled: list[CompiledRelease], names: Names) -> None:
        """Start without rows; ``names`` collects the devices and users of guards."""
        self._name = name
        self._names = names
        self._compiled = compiled
        leaves = {leaf: None for item in compiled for leaf in _static_leaves(item.node)}
        leaves |= {item.code: None for item in compiled if item.code is not None}
        self._leaves = tuple(leaves)
        self._rows: dict[tuple[bool | None, ...], Guarded] = {}

    def row(self, outcomes: Outcomes) -> Guarded:
        """Return the task's row for a class."""
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
            node = _specialise(item.node, outcomes)
            if item.limit < 0 or not _can_hold(node):
                continue
            if item.code is not None and outcomes[item.code.field][item.code.number] is False:
                unfit[item.release.release_id] = None
                continue
            guard = _guard_of(node)
            test = None if node is True else _test_of(node)
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
                break  # it admits every device, so later releases are never asked
        is_watched = any(candidate.standing.release_id for candidate in every)
        if not every:
            return Guarded(None, tuple(unfit))
        row = Row(self._name, Choices.of(opened), Choices.of(every), is_watched)
        return Guarded(row, tuple(unfit))


def _specialise(node: Node, outcomes: Outcomes) -> Node:
    """Return the rest of a tree for a class of devices, without static leaves."""
    match node:
        case Static(field, number):
            return outcomes[field][number]
        case Group(is_all, parts):
            left, truths = _split(parts, outcomes)
            known = all_of(truths) if is_all else any_of(truths)
            if not left or known is (not is_all):
                return known
            rest = (*left, None) if known is None else left
            return rest[0] if len(rest) == 1 else Group(is_all, rest)
        case Not(part):
            inner = _specialise(part, outcomes)
            is_constant = inner is None or isinstance(inner, bool)
            return negated(inner) if is_constant else Not(inner)  # type: ignore[arg-type]
        case _:
            return node


def _split(parts: tuple[Node, ...], outcomes: Outcomes) -> tuple[tuple[Node, ...], list[Truth]]:
    left: list[Node] = []
    truths: list[Truth] = []
    for part in parts:
        result = _specialise(part, outcomes)
        if result is None or isinstance(result, bool):
            truths.append(result)
        else:
            left.append(result)
    return tuple(left), truths


def _static_leaves(node: Node) -> Iterator[Static]:
    """Yield the static leaves of a tree."""
    match node:
        case Static():
            yield node
        case Group(_, parts):
            for part in parts:
                yield from _static_leaves(part)
        case Not(part):
            yield from _static_leaves(part)
        case _:
            pass


def _can_hold(node: Node) -> bool:
    """Return whether a specialised tree may be true of some device."""
    match node:
        case Group(is_all, parts):
            return (all if is_all else any)(map(_can_hold, parts))
        case None | False:
            return False
        case _:
            return True


def _guard_of(node: Node) -> Guard | None:
    """Return a guard that must hold for the tree to be true, or None."""
    match node:
        case Dynamic(_, guard):
            return guard
        case Group(True, parts):
            guards = [guard for part in parts if (guard := _guard_of(part)) is not None]
            return min(guards, key=lambda guard: len(guard.ids), default=None)
        case _:
            return None


def _test_of(node: Node) -> Test:
    """Return a specialised tree as a function."""
    match node:
        case Dynamic(test, _):
            return test
        case Group(is_all, parts):
            return _joined(tuple(map(_test_of, parts)), decisive=not is_all)
        case Not(part):
            inner = _test_of(part)
            return lambda facts: negated(inner(facts))
        case constant:
            return lambda _: constant  # type: ignore[return-value]  # no static leaf is left


def _joined(tests: tuple[Test, ...], *, decisive: bool) -> Test:
    """Return the conjunction of tests, or with ``decisive=True`` their disjunction."""

    def test(facts: Facts) -> Truth:
        truth: Truth = not decisive
        for part in tests:
            outcome = part(facts)
            if outcome is decisive:
                return outcome
            if outcome is None:
                truth = None
        return truth

    return test
