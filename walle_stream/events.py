"""The behaviour event of a device, with its time and its place in the app.

There are five basic kinds, as in Walle §"data pipeline". An event is immutable by
convention: no code writes to an event after its source made it. It has no reference
cycles, so the garbage collector need not track it.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from walle_stream.types import TIME_MAX_MS

type Kind = Literal["page_enter", "page_scroll", "exposure", "click", "page_exit"]
"""The five basic kinds of behaviour events."""

KINDS: Final[tuple[Kind, ...]] = ("page_enter", "page_scroll", "exposure", "click", "page_exit")
"""All kinds, in the order of their codes in stored rows."""


class Event(msgspec.Struct, gc=False):
    """One behaviour event of one device."""

    device_id: str
    """The device: 1 to 1,024 bytes of UTF-8 without NUL."""

    id: str
    """The event id that triggers match (Walle's event id: a type of event, not an
    occurrence); the kind's name unless the source has a finer id."""

    kind: Kind
    """One of the five basic kinds."""

    page_id: str
    """The page of the app; triggers match it, too."""

    page_instance: str
    """Id of the visit of the page, unique per device. An empty id means the latest
    open page of this ``page_id``."""

    event_time_ms: Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_MS)]
    """The device's own time in epoch milliseconds, for order and lateness."""

    ingest_time_ms: Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_MS)]
    """Time of the event's first storage in epoch milliseconds, for timeouts."""

    contents: dict[str, Any] = {}
    """``item``, ``widget`` and free fields; JSON values only. No list or object in it
    is shared with another event."""

    uid: str = ""
    """Identity of this occurrence. If it is not empty, a second event of the same
    device and uid within the order bound is a duplicate."""
