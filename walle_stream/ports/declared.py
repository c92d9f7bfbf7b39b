"""Ids of a source's events that are known before any event is read."""

import msgspec


class DeclaredIds(msgspec.Struct, frozen=True):
    """Possible ids and pages of a source's events; a source without ``declared`` knows none."""

    ids: frozenset[str] = frozenset()
    """Event ids in the source's definition."""
    pages: frozenset[str] = frozenset()
    """Page ids in the source's definition."""
    has_other_ids: bool = True
    """Whether events may have other ids, such as ids from rows."""
    has_other_pages: bool = True
    """Whether events may have other pages."""
