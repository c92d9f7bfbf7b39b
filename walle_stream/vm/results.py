"""What goes into a call of a VM and what comes out of it.

Inputs are plain tuples, because marshal carries nothing else; results are made
by the host from the guest's frame (``walle_stream.vm.frames``).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

type RunInput = tuple[int, int, tuple[Any, ...] | list[Any]]
"""(trigger position, clock_ms, page); the page, or a list for a reply of the cloud,
as in ``guest.layout``."""

type DeviceGroup = tuple[str, dict[str, bytes], Sequence[RunInput]]
"""(device_id, state, runs in the order of their positions). No list or dict may
stand twice in the groups of a call: the guest would see one object, and what a
script changes in one run would be there in another."""


class RunResult(msgspec.Struct, gc=False):
    """What one run did; only read, some are shared."""

    ok: bool
    emits: list[tuple[bytes, bytes]] = []
    """(feature as JSON, encoding or empty), in the order of ``ctx.emit``."""
    logs: list[tuple[str, str]] = []
    """(level, text)."""
    error: str = ""
    """Class of the exception, when the run failed."""
    calls: list[tuple[str, bytes]] = []
    """(service, question as JSON), in the order of ``ctx.call_cloud``."""
    message: str = ""
    """``file:line: class: text``, when the run failed."""


class GroupResult(msgspec.Struct, gc=False):
    """What the runs of one device did, in the order of the group's runs."""

    device_id: str
    state: dict[str, bytes | None]
    """Changed entries only; None = deleted."""
    runs: list[RunResult]
    returned: int = 0
    """Runs that returned a value, which nobody takes."""
