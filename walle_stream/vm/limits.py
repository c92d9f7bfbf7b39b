"""Bounds of a task's runs, and their isolation from others."""

from typing import Annotated, Final, Literal

import msgspec

_MIB: Final = 2**20

type Isolation = Literal["shared", "device", "process"]
"""``shared``: any VM of the task runs any device; ``device``: every device has its
own VM; ``process``: every VM has its own process."""


class RunLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Bounds of one run of a task; a run that exceeds one fails, and the task continues."""

    output_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * _MIB)] = _MIB
    """Features and encodings together."""
    emits: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    log_lines: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 100
    """Further lines are dropped and counted; the run does not fail."""
    wall_time_ms: Annotated[int, msgspec.Meta(ge=10, le=3_600_000)] = 5_000
    """The run is stopped after this time, at most a quarter later."""
    strikes: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    """Runs stopped on one device before the task is quarantined there."""
    steps: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0
    """Loop turns and calls of the script's functions; 0 for no limit.
    With a limit, every step costs about 0.1 us more."""
    state_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * _MIB)] = _MIB
    """Keys and values of one device's state of the task."""


class Confinement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Confinement of the processes of a task with ``isolation: process``."""

    memory_bytes: Annotated[int, msgspec.Meta(ge=64 * _MIB, le=2**40)] = 256 * _MIB
    """Memory of one process, interpreter included."""
    cpu_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 0
    """CPU time of one run; 0 for no limit."""
    required: tuple[str, ...] = ()
    """Measures without which no script runs, ascending."""
