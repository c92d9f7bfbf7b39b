"""The unread input of a source."""

import msgspec


class Unread(msgspec.Struct, frozen=True):
    """Unread input of a reader; a value is -1 if its source does not know it."""

    rows: int = -1
    """Records up to the newest known one."""
    size_bytes: int = -1
    """Bytes in the source, compressed if the source is compressed."""
    time_ms: int = -1
    """Time from the last read event to the newest row, by the times of their first storage. For
    a topic with unread records, time from the last read event to now."""
