"""A device at rest, and what a commit writes of one.

In the data flow: made by ``PartitionMachine.delta``, written by the partition's
rows, read again by ``PartitionMachine.activate``.
"""

from typing import Any

import msgspec


class DeviceSnapshot(msgspec.Struct, array_like=True):
    """A device at rest, without the event rows of its open pages."""

    position: int
    next_number: int
    cursor: list[list[str]]
    deadline_ms: int | None
    sequence: Any
    """``DeviceSequence.export()``: plain tuples."""
    next_call: int = 1
    as_of: int = 0
    """Number of the last batch that it includes."""
    task_set: str = ""
    """Id of the tasks that it has; empty for the definition's."""


class DeviceDelta(msgspec.Struct, gc=False):
    """What a commit writes for one dirty device."""

    device_id: str
    snapshot: DeviceSnapshot
    new_rows: list[tuple[int, int, Any]]
    """Event rows of open pages: (page ordinal, row index, row); append-only."""
    closed_pages: list[tuple[int, int]]
    """Pages that have rows in the store and are closed: (ordinal, row count)."""
