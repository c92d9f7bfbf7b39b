"""Truth with a third value, unknown, as in Kleene's logic."""

from collections.abc import Sequence

type Truth = bool | None
"""None means unknown."""


def all_of(truths: Sequence[Truth]) -> Truth:
    """Return Kleene's conjunction."""
    if False in truths:
        return False
    return None if None in truths else True


def any_of(truths: Sequence[Truth]) -> Truth:
    """Return Kleene's disjunction."""
    if True in truths:
        return True
    return None if None in truths else False


def negated(truth: Truth) -> Truth:
    """Return Kleene's negation."""
    return None if truth is None else not truth
