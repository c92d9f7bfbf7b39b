"""What goes into a partition's core besides events, and what comes out of it.

In the data flow: the partition's host has VMs make the ``Runs`` that a batch woke; a
``Told`` comes down the tunnel.
"""

from typing import Final, NamedTuple

import msgspec

from walle_stream.stream.pages import PageInput, ToldInput
from walle_stream.wire.event_batch import RefusedRow

REPLY_POSITION: Final = 1 << 40
"""Replies have their calls' numbers behind this as positions: when one arrives is
left to chance, and must not be seen in the positions of events."""

MESSAGE_POSITION: Final = 1 << 41
"""Messages have their partition's numbers of them behind this as positions; those that waited
for their device's first event the same less this, as they run before it."""

type Runs = dict[tuple[str, str], dict[str, list[tuple[int, int, PageInput | ToldInput]]]]
"""What to run, by (task, program) and device: (trigger position, clock_ms, page), ascending.
See ``RunTask``."""


class RunTask(msgspec.Struct, gc=False):
    """One run: this task for this device over this page."""

    device_id: str
    task: str
    position: int
    """Trigger position: which released event of the device woke the task,
    from 1; orders the device's features and seeds the guest's random."""
    clock_ms: int
    """The guest's clock: event time of the waking event."""
    page: PageInput | ToldInput
    program: str
    """Which of the task's versions this device has, as VMs know it."""


class Woken(NamedTuple):
    """What came of a batch."""

    runs: Runs
    refused: list[RefusedRow]
    """Events that cannot be stored, then those that came too late for their device's order."""
    events: int
    """That were taken: the others, late ones among them."""
    exits: int
    """Pages that an exit ended."""


class Told(NamedTuple):
    """A reply or a message of the cloud: an event of its device that wakes one task."""

    device_id: str
    task: str
    position: int
    given: ToldInput
    clock_ms: int | None = None
    """The guest's clock; None: the partition's watermark."""


class StreamCounts(msgspec.Struct):
    """What batches did to the event sequences since the last commit: names as in ``Counters``."""

    events: int = 0
    devices: int = 0
    """That were never seen before."""
    page_sequences: int = 0
    timed_out_pages: int = 0
    reentered_pages: int = 0
    overflowed_pages: int = 0
    missing_enters: int = 0
    duplicate_events: int = 0
    late_events: int = 0
