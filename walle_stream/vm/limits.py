"""What bounds a task's runs, and what keeps them apart from others."""

from typing import Annotated, Final, Literal

import msgspec

_MIB: Final = 2**20

type Isolation = Literal["shared", "device", "process"]
"""``shared``: any device's runs in the task's VMs; ``device``: a VM of its own
for every device; ``process``: VMs in processes of their own."""


class RunLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Bounds of one run of a task; beyond them the run fails, the task goes on."""

    output_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * _MIB)] = _MIB
    """Features and encodings together."""
    emits: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 10_000
    log_lines: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 100
    """More are dropped and counted; the run does not fail."""
    wall_time_ms: Annotated[int, msgspec.Meta(ge=10, le=3_600_000)] = 5_000
    """The run is stopped between this and a quarter more of it."""
    strikes: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 3
    """Runs stopped on one device before the task is quarantined there."""
    steps: Annotated[int, msgspec.Meta(ge=0, le=10**12)] = 0
    """Turns of loops and calls of the script's functions; 0 for any number.
    Where it is set, every step costs about 0.1 us more."""
    state_bytes: Annotated[int, msgspec.Meta(ge=1, le=64 * _MIB)] = _MIB
    """Keys and values of one device's state of the task."""


class Confinement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How the processes of a task with ``isolation: process`` are confined."""

    memory_bytes: Annotated[int, msgspec.Meta(ge=64 * _MIB, le=2**40)] = 256 * _MIB
    """Of one process, interpreter included."""
    cpu_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] = 0
    """CPU time of one run; 0 for any."""
    required: tuple[str, ...] = ()
    """Measures without which no script runs, ascending."""
