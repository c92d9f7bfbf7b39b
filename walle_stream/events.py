"""The event: what happened on a device, when, and where in the app.

Five basic kinds as in Walle §"data pipeline". An event is immutable by
convention (nobody writes to one after the source made it) and carries no
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
    """Which device; 1 to 1,024 bytes of UTF-8 without NUL."""

    id: str
    """The event id that triggers match (Walle's event id: a type of event, not
    one occurrence); the kind's name unless the source gives a finer one."""

    kind: Kind
    """Which of the five basic kinds."""

    page_id: str
    """The page of the app; triggers match it too."""

    page_instance: str
    """Which visit of the page, unique per device; may be empty: then the
    latest open page of this ``page_id`` is meant."""

    event_time_ms: Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_MS)]
    """The device's own time, epoch milliseconds: order and lateness."""

    ingest_time_ms: Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_MS)]
    """When the event was first stored, epoch milliseconds: time-outs."""

    contents: dict[str, Any] = {}
    """``item``, ``widget`` and free fields; JSON values only. The event's own: no
    list or object in it belongs to another event as well."""

    uid: str = ""
    """Identity of this occurrence; when not empty, a second event of the same
    device and uid within the order bound is a duplicate."""
