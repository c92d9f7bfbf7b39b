"""What goes into a partition's machine besides events, and what comes out of it.

In the data flow: ``RunTask`` is a command of ``PartitionMachine`` that the partition's
host carries out; a ``Reply`` comes down the tunnel.
"""

from typing import Final, NamedTuple

import msgspec

from walle_stream.stream.pages import PageInput, ReplyInput

REPLY_POSITION: Final = 1 << 40
"""Replies have their calls' numbers behind this as positions: when one arrives is
left to chance, and must not be seen in the positions of events."""


class RunTask(msgspec.Struct, gc=False):
    """A command: run this task for this device over this page."""

    device_id: str
    task: str
    position: int
    """Trigger position: which released event of the device woke the task,
    from 1; orders the device's features and seeds the guest's random."""
    clock_ms: int
    """The guest's clock: event time of the waking event."""
    page: PageInput | ReplyInput
    program: str
    """Which of the task's versions this device has, as VMs know it."""


class Reply(NamedTuple):
    """An answer of the cloud: an event of its device that wakes one task."""

    device_id: str
    task: str
    number: int
    """Of the call."""
    given: ReplyInput


class StreamCounts(msgspec.Struct):
    """What a batch did to the event sequences, for the counters."""

    events: int = 0
    new_devices: int = 0
    page_sequences: int = 0
    timed_out_pages: int = 0
    reentered_pages: int = 0
    overflowed_pages: int = 0
    missing_enters: int = 0
    duplicate_events: int = 0
    late_events: int = 0
