"""Trees of policies for one class of devices: no static leaf is left in them.

``specialise`` puts a class's answers into the static leaves; what remains is a small test of
single devices, often nothing at all.
"""

from collections.abc import Iterator

from walle_deploy.policy.facts import Facts
from walle_deploy.policy.tree import Dynamic, Group, Guard, Node, Not, Static, Test
from walle_deploy.policy.truth import Truth, all_of, any_of, negated

type Outcomes = tuple[tuple[Truth, ...], ...]
"""For each field of ``compiling.FIELDS`` what its tests say of a class."""


def specialise(node: Node, outcomes: Outcomes) -> Node:
    """Return what is left of a tree for a class of devices: no static leaf."""
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
            inner = specialise(part, outcomes)
            is_constant = inner is None or isinstance(inner, bool)
            return negated(inner) if is_constant else Not(inner)  # type: ignore[arg-type]
        case _:
            return node


def _split(parts: tuple[Node, ...], outcomes: Outcomes) -> tuple[tuple[Node, ...], list[Truth]]:
    left: list[Node] = []
    truths: list[Truth] = []
    for part in parts:
        result = specialise(part, outcomes)
        if result is None or isinstance(result, bool):
            truths.append(result)
        else:
            left.append(result)
    return tuple(left), truths


def static_leaves(node: Node) -> Iterator[Static]:
    """Yield the static leaves of a tree."""
    match node:
        case Static():
            yield node
        case Group(_, parts):
            for part in parts:
                yield from static_leaves(part)
        case Not(part):
            yield from static_leaves(part)
        case _:
            pass


def can_hold(node: Node) -> bool:
    """Tell whether a specialised tree may be true of some device."""
    match node:
        case Group(is_all, parts):
            return (all if is_all else any)(map(can_hold, parts))
        case None | False:
            return False
        case _:
            return True


def guard_of(node: Node) -> Guard | None:
    """Return ids one of which a device must have for the tree to be true, if there are any."""
    match node:
        case Dynamic(_, guard):
            return guard
        case Group(True, parts):
            guards = [guard for part in parts if (guard := guard_of(part)) is not None]
            return min(guards, key=lambda guard: len(guard.ids), default=None)
        case _:
            return None


def test_of(node: Node) -> Test:
    """Return a specialised tree as a function."""
    match node:
        case Dynamic(test, _):
            return test
        case Group(is_all, parts):
            return _joined(tuple(map(test_of, parts)), decisive=not is_all)
        case Not(part):
            inner = test_of(part)
            return lambda facts: negated(inner(facts))
        case constant:
            return lambda _: constant  # type: ignore[return-value]  # no static leaf is left


def _joined(tests: tuple[Test, ...], *, decisive: bool) -> Test:
    """Return the disjunction of tests, which one that is true decides; else the conjunction."""

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
