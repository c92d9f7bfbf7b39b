"""What is left of a source."""

import msgspec


class Unread(msgspec.Struct, frozen=True):
    """What a reader has yet to read, as far as its source knows; -1 where it does not."""

    rows: int = -1
    """Records, up to the newest that is known."""
    size_bytes: int = -1
    """As they lie in the source: compressed, where they are."""
    time_ms: int = -1
    """From the event read last to the newest row, by the times at which they were first stored;
    of a topic to now, while it has unread records."""
