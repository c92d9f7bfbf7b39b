"""What is left of a source."""

import msgspec


class Unread(msgspec.Struct, frozen=True):
    """What a reader has yet to read, as far as its source knows; -1 where it does not."""

    rows: int = -1
    """Records, up to the newest that is known."""
    size_bytes: int = -1
    """As they lie in the source: compressed, where they are."""
