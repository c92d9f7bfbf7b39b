"""Compiled policies: the part that depends on a device's class is decided once per class.

``Compiler`` turns a policy into a tree with static and dynamic leaves. Static leaves test values
that many devices share: app, versions, model. Dynamic leaves test one device or user.
"""

import re
from collections.abc import Callable, Hashable
from fnmatch import translate
from typing import Any, Final

from walle_deploy.policy.facts import Facts, Sources
from walle_deploy.policy.hashing import MASK, policy_salt, salt_key, share_limit
from walle_deploy.policy.model import IdFile, Policy
from walle_deploy.policy.tree import Dynamic, Group, Guard, Node, Not, Static
from walle_deploy.policy.truth import Truth
from walle_deploy.policy.versions import parse_memory_range, parse_version_range, try_version

FIELDS: Final = (
    *("app", "app_version", "os", "os_version"),
    *("interpreter", "performance", "model", "memory_mb"),
)
"""Fields of a profile that static leaves test."""


class Compiler:
    """Compiler of policies to trees, which share equal tests of a field."""

    def __init__(self, sources: Sources) -> None:
        """Start without tests."""
        self._sources = sources
        self._tests: list[list[Callable[[Any], Truth]]] = [[] for _ in FIELDS]
        self._numbers: dict[Hashable, Static] = {}

    def compile(self, policy: Policy, salt: str) -> Node:
        """Return the tree of a policy."""
        parts: list[Node] = [*self._static(policy), *self._dynamic(policy, salt)]
        parts += [self.compile(part, salt) for part in policy.all_]
        if policy.any_ is not None:
            inner = tuple(self.compile(part, salt) for part in policy.any_)
            parts.append(Group(is_all=False, parts=inner))
        if policy.not_ is not None:
            parts.append(Not(self.compile(policy.not_, salt)))
        parts += [Not(self.compile(part, salt)) for part in policy.exclude]
        return parts[0] if len(parts) == 1 else Group(is_all=True, parts=tuple(parts))

    def compile_code(self, interpreters: tuple[str, ...]) -> Static:
        """Return the leaf that tests whether a device has one of some interpreters."""
        # unlike a policy's list of interpreters, this one admits devices that report none
        wanted = frozenset((*interpreters, ""))
        return self._leaf("interpreter", wanted, wanted.__contains__)

    def outcomes(self, field: int, value: Any) -> tuple[Truth, ...]:
        """Return the results of a field's tests for a value; a field is an index in ``FIELDS``."""
        return tuple(test(value) for test in self._tests[field])

    @property
    def fields(self) -> tuple[int, ...]:
        """The fields with at least one test."""
        return tuple(number for number, tests in enumerate(self._tests) if tests)

    def _leaf(self, field: str, wanted: Hashable, test: Callable[[Any], Truth]) -> Static:
        index = FIELDS.index(field)
        key = (index, wanted)
        leaf = self._numbers.get(key)
        if leaf is None:
            leaf = self._numbers[key] = Static(index, len(self._tests[index]))
            self._tests[index].append(test)
        return leaf

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
            key, limit = salt_key(own), share_limit(policy.percent)
            nodes.append(Dynamic(lambda facts: (facts.device_hash * key & MASK) <= limit))
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
            nodes.append(
                _attribute_test("interest_tags", lambda values: not tags.isdisjoint(values))
            )
        return nodes

    def _ids(self, ids: tuple[str, ...] | IdFile, *, is_user: bool) -> Dynamic:
        if not isinstance(ids, IdFile):
            return guarded(Guard(is_user, frozenset(ids)))
        watched = self._sources.ids(ids.file)

        def test(facts: Facts) -> Truth:
            known = watched.known
            if known is None:
                return None
            if is_user:
                return bool(facts.profile.user) and known.has(facts.user_hash)
            return known.has(facts.device_hash)

        return Dynamic(test)


def guarded(guard: Guard) -> Dynamic:
    """Return the leaf for a list of ids."""
    ids = guard.ids
    if guard.is_user:
        return Dynamic(lambda facts: facts.profile.user in ids, guard)
    return Dynamic(lambda facts: facts.profile.device in ids, guard)


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


def _attribute_test(name: str, test: Callable[[Any], bool]) -> Dynamic:
    def of_user(facts: Facts) -> Truth:
        value = getattr(facts.attributes, name)
        return test(value) if value else None

    return Dynamic(of_user)
