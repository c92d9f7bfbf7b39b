"""Inputs and results of a VM call.

Inputs are plain tuples, because marshal carries nothing else. The host makes
results from the guest's frame (``walle_stream.vm.frames``).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

type RunInput = tuple[int, int, tuple[Any, ...] | list[Any]]
"""(trigger position, clock_ms, page). A list in place of the page is a reply of the cloud,
as in ``guest.layout``."""

type DeviceGroup = tuple[str, dict[str, bytes], Sequence[RunInput]]
"""(device_id, state, runs in the order of their positions). No list or dict may
appear twice in the groups of a call: the guest would see one object, and a script's
change of it in one run would appear in another run."""


class RunResult(msgspec.Struct, gc=False):
    """Result of one run; read-only, because some instances are shared."""

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
    """Results of the runs of one device, in the order of the group's runs."""

    device_id: str
    state: dict[str, bytes | None]
    """Changed entries only; None for a deleted entry."""
    runs: list[RunResult]
    returned: int = 0
    """Runs that returned a value, which is ignored."""
