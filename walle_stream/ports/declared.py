"""What a source knows of its events before it reads one."""

import msgspec


class DeclaredIds(msgspec.Struct, frozen=True):
    """Which ids and pages a source's events can have; a source without ``declared`` knows none."""

    ids: frozenset[str] = frozenset()
    """Event ids that its definition names."""
    pages: frozenset[str] = frozenset()
    """Page ids that it names."""
    has_other_ids: bool = True
    """Whether there may be others, such as those that stand in the rows."""
    has_other_pages: bool = True
    """The same of pages."""
