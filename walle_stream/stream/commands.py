"""Inputs of a partition's core besides events, and its outputs.

Place in the data flow: VMs of the partition's host make the ``Runs`` that a batch woke. A
``Told`` comes down the tunnel.
"""

from typing import Final, NamedTuple

import msgspec

from walle_stream.stream.pages import PageInput, ToldInput
from walle_stream.wire.event_batch import RefusedRow

REPLY_POSITION: Final = 1 << 40
"""Offset of the positions of replies: a reply's position is this plus its call's number. The
arrival of a reply is left to chance, and must not affect the positions of events."""

MESSAGE_POSITION: Final = 1 << 41
"""Offset of the positions of messages: a message's position is this plus its number in the
partition. A message that waited for its device's first event runs before that event, so its
position is its number minus this."""

type Runs = dict[tuple[str, str], dict[str, list[tuple[int, int, PageInput | ToldInput]]]]
"""Runs by (task, program) and device: (trigger position, clock_ms, page), ascending.
See ``RunTask``."""


class RunTask(msgspec.Struct, gc=False):
    """One run of a task for a device over a page."""

    device_id: str
    task: str
    position: int
    """Trigger position: number, from 1, of the device's released event that woke the task. It
    orders the device's features and seeds the guest's random numbers."""
    clock_ms: int
    """The guest's clock: time of the event that woke the task."""
    page: PageInput | ToldInput
    program: str
    """Version of the task on this device, by the VMs' name."""


class Woken(NamedTuple):
    """Results of a batch."""

    runs: Runs
    refused: list[RefusedRow]
    """Events that cannot be stored, then events that came too late for their device's order."""
    events: int
    """Number of taken events, late ones included."""
    exits: int
    """Pages that an exit ended."""


class Told(NamedTuple):
    """A reply or a message of the cloud: an event of its device that wakes one task."""

    device_id: str
    task: str
    position: int
    given: ToldInput
    clock_ms: int | None = None
    """The guest's clock; None for the partition's watermark."""


class StreamCounts(msgspec.Struct):
    """Counts of the event sequences since the last commit, named as in ``Counters``."""

    events: int = 0
    devices: int = 0
    """New devices."""
    page_sequences: int = 0
    timed_out_pages: int = 0
    reentered_pages: int = 0
    overflowed_pages: int = 0
    missing_enters: int = 0
    duplicate_events: int = 0
    late_events: int = 0
