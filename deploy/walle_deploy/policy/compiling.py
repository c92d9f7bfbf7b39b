"""Policies made fast: what depends on a device's class is decided once per class.

``Compiler`` turns a policy into a tree whose leaves are either static (they look at what
many devices have alike: app, versions, model) or dynamic (they look at one device or user).
``specialise`` puts a class's answers into the static leaves; what is left is a small test of
dynamic leaves, often nothing at all.
"""

import re
from collections.abc import Callable, Hashable, Iterator
from fnmatch import translate
from typing import Any, Final, NamedTuple

from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import MASK, salt_key, share_limit
from walle_deploy.policy.judging import Truth, all_of, any_of, negated, policy_salt
from walle_deploy.policy.model import IdFile, Policy
from walle_deploy.policy.versions import parse_memory_range, parse_version_range, try_version

FIELDS: Final = (
    *("app", "app_version", "os", "os_version"),
    *("interpreter", "performance", "model", "memory_mb"),
)
"""Of a profile, that static leaves look at."""

type Test = Callable[[Facts], Truth]

type Node = Truth | Static | Dynamic | All | Any_ | Not

type Outcomes = tuple[tuple[Truth, ...], ...]
"""For each field of ``FIELDS`` what its tests say of a class."""


class Static(NamedTuple):
    """A test of a field that whole classes of devices share."""

    field: int
    number: int


class Guard(NamedTuple):
    """Ids one of which a device must have: others need not be asked."""

    is_user: bool
    ids: frozenset[str]


class Dynamic(NamedTuple):
    """A test of one device or user."""

    test: Test
    guard: Guard | None = None


class All(NamedTuple):
    """Conjunction."""

    parts: tuple["Node", ...]


class Any_(NamedTuple):  # noqa: N801 - Any is taken
    """Disjunction."""

    parts: tuple["Node", ...]


class Not(NamedTuple):
    """Negation."""

    part: "Node"


class Compiler:
    """Makes trees; equal tests of a field are one."""

    def __init__(self, sources: Sources) -> None:
        """Start without any test.

        Args:
            sources: Where files of ids and attributes are.
        """
        self._sources = sources
        self._tests: list[list[Callable[[Any], Truth]]] = [[] for _ in FIELDS]
        self._numbers: dict[Hashable, Static] = {}

    def compile(self, policy: Policy, salt: str) -> Node:
        """Return the tree of a policy.

        Args:
            policy: Any.
            salt: Of its release.

        Raises:
            ValueError: Never of a policy that was validated.
        """
        parts: list[Node] = [*self._static(policy), *self._dynamic(policy, salt)]
        parts += [self.compile(each, salt) for each in policy.all_]
        if policy.any_ is not None:
            parts.append(Any_(tuple(self.compile(each, salt) for each in policy.any_)))
        if policy.not_ is not None:
            parts.append(Not(self.compile(policy.not_, salt)))
        parts += [Not(self.compile(each, salt)) for each in policy.exclude]
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def outcomes(self, field: int, value: Any) -> tuple[Truth, ...]:
        """Return what the tests of a field say of a value.

        Args:
            field: Index in ``FIELDS``.
            value: Of a profile.
        """
        return tuple(test(value) for test in self._tests[field])

    @property
    def fields(self) -> tuple[int, ...]:
        """Those that any test looks at."""
        return tuple(number for number, tests in enumerate(self._tests) if tests)

    def _leaf(self, field: str, wanted: Hashable, test: Callable[[Any], Truth]) -> Static:
        index = FIELDS.index(field)
        key = (index, wanted)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = Static(index, len(self._tests[index]))
            self._tests[index].append(test)
        return found

    def _static(self, policy: Policy) -> list[Node]:
        nodes: list[Node] = []
        for field in ("app", "os", "performance", "interpreter"):
            wanted = getattr(policy, field)
            if wanted is not None:
                nodes.append(self._leaf(field, wanted, _known(frozenset(wanted).__contains__)))
        for field in ("app_version", "os_version"):
            wanted = getattr(policy, field)
            if wanted is not None:
                nodes.append(self._leaf(field, wanted, _version_test(wanted)))
        if policy.model is not None:
            nodes.append(self._leaf("model", policy.model, _known(_patterns(policy.model))))
        if policy.memory is not None:
            test = _known(parse_memory_range(policy.memory))
            nodes.append(self._leaf("memory_mb", policy.memory, test))
        return nodes

    def _dynamic(self, policy: Policy, salt: str) -> list[Node]:
        nodes: list[Node] = []
        if policy.percent is not None:
            own = policy.salt if policy.salt is not None else policy_salt(salt)
            nodes.append(Dynamic(_share_test(salt_key(own), share_limit(policy.percent))))
        if policy.devices is not None:
            nodes.append(self._ids(policy.devices, is_user=False))
        if policy.users is not None:
            nodes.append(self._ids(policy.users, is_user=True))
        if policy.age_band is not None:
            nodes.append(_attribute_test("age_band", frozenset(policy.age_band).__contains__))
        if policy.region is not None:
            nodes.append(_attribute_test("region", _patterns(policy.region)))
        if policy.interest_tags is not None:
            tags = frozenset(policy.interest_tags)
            nodes.append(_attribute_test("interest_tags", lambda found: not tags.isdisjoint(found)))
        return nodes

    def _ids(self, ids: tuple[str, ...] | IdFile, *, is_user: bool) -> Dynamic:
        if not isinstance(ids, IdFile):
            return guarded(Guard(is_user, frozenset(ids)))
        watched = self._sources.ids(ids.file)

        def device_test(facts: Facts) -> Truth:
            known = watched.known
            return None if known is None else known.has(facts.device_hash)

        def user_test(facts: Facts) -> Truth:
            known = watched.known
            if known is None:
                return None
            return bool(facts.profile.user) and known.has(facts.user_hash)

        return Dynamic(user_test if is_user else device_test)


def guarded(guard: Guard) -> Dynamic:
    """Return the leaf that a list of ids is.

    Args:
        guard: The list.
    """
    ids = guard.ids
    if guard.is_user:
        return Dynamic(lambda facts: facts.profile.user in ids, guard)
    return Dynamic(lambda facts: facts.profile.device in ids, guard)


def specialise(node: Node, outcomes: Outcomes) -> Node:
    """Return what is left of a tree for a class of devices: no static leaf.

    Args:
        node: A tree.
        outcomes: Of the class.
    """
    match node:
        case Static(field, number):
            return outcomes[field][number]
        case All(parts) | Any_(parts):
            left, truths = _split(parts, outcomes)
            is_all = isinstance(node, All)
            known = all_of(truths) if is_all else any_of(truths)
            if not left or known is (not is_all):
                return known
            rest = (*left, None) if known is None else left
            return rest[0] if len(rest) == 1 else type(node)(rest)
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
        found = specialise(part, outcomes)
        if found is None or isinstance(found, bool):
            truths.append(found)
        else:
            left.append(found)
    return tuple(left), truths


def static_leaves(node: Node) -> Iterator[Static]:
    """Yield the static leaves of a tree.

    Args:
        node: A tree.
    """
    match node:
        case Static():
            yield node
        case All(parts) | Any_(parts):
            for part in parts:
                yield from static_leaves(part)
        case Not(part):
            yield from static_leaves(part)
        case _:
            pass


def can_hold(node: Node) -> bool:
    """Tell whether a specialised tree may be true of some device.

    Args:
        node: Of ``specialise``.
    """
    match node:
        case All(parts):
            return all(map(can_hold, parts))
        case Any_(parts):
            return any(map(can_hold, parts))
        case None | False:
            return False
        case _:
            return True


def guard_of(node: Node) -> Guard | None:
    """Return ids one of which a device must have for the tree to be true, if there are any.

    Args:
        node: Of ``specialise``.
    """
    match node:
        case Dynamic(_, guard):
            return guard
        case All(parts):
            found = [guard for part in parts if (guard := guard_of(part)) is not None]
            return min(found, key=lambda guard: len(guard.ids), default=None)
        case _:
            return None


def test_of(node: Node) -> Test:
    """Return a specialised tree as a function.

    Args:
        node: Of ``specialise``.
    """
    match node:
        case Dynamic(test, _):
            return test
        case All(parts):
            return _conjunction(tuple(map(test_of, parts)))
        case Any_(parts):
            return _disjunction(tuple(map(test_of, parts)))
        case Not(part):
            inner = test_of(part)
            return lambda facts: negated(inner(facts))
        case constant:
            return lambda _: constant  # type: ignore[return-value]  # no static leaf is left


def _conjunction(tests: tuple[Test, ...]) -> Test:
    def test(facts: Facts) -> Truth:
        truth: Truth = True
        for each in tests:
            found = each(facts)
            if found is False:
                return False
            if found is None:
                truth = None
        return truth

    return test


def _disjunction(tests: tuple[Test, ...]) -> Test:
    def test(facts: Facts) -> Truth:
        truth: Truth = False
        for each in tests:
            found = each(facts)
            if found is True:
                return True
            if found is None:
                truth = None
        return truth

    return test


def _known(test: Callable[[Any], bool]) -> Callable[[Any], Truth]:
    return lambda value: test(value) if value else None


def _version_test(range_: str) -> Callable[[Any], Truth]:
    holds = parse_version_range(range_)

    def test(value: str) -> Truth:
        version = try_version(value)
        return None if version is None else holds(version)

    return test


def _patterns(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    match = re.compile("|".join(map(translate, patterns))).match
    return lambda value: match(value) is not None


def _share_test(key: int, limit: int) -> Test:
    return lambda facts: (facts.device_hash * key & MASK) <= limit


def _attribute_test(name: str, test: Callable[[Any], bool]) -> Dynamic:
    def of_user(facts: Facts) -> Truth:
        value = getattr(facts.attributes, name)
        return test(value) if value else None

    return Dynamic(of_user)
