"""Compiled policies: trees of tests of classes of devices and of single devices."""

from collections.abc import Callable
from typing import NamedTuple

from walle_deploy.policy.facts import Facts
from walle_deploy.policy.truth import Truth

type Test = Callable[[Facts], Truth]

type Node = Truth | Static | Dynamic | Group | Not


class Static(NamedTuple):
    """A test of a field that whole classes of devices share."""

    field: int
    """Index in ``compiling.FIELDS``."""
    number: int
    """Number of the test among the field's tests."""


class Guard(NamedTuple):
    """Ids of which a device or user must have one; all others fail without a test."""

    is_user: bool
    ids: frozenset[str]


class Dynamic(NamedTuple):
    """A test of one device or user."""

    test: Test
    guard: Guard | None = None


class Group(NamedTuple):
    """A conjunction or disjunction."""

    is_all: bool
    parts: tuple["Node", ...]


class Not(NamedTuple):
    """A negation."""

    part: "Node"
