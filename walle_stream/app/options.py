"""Options of a pipeline's run; its definition has the rest."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from walle_stream.errors import StuckScriptError


def end_process(task: str, device_id: str) -> None:
    """End the process at once; committed data stays."""
    os.write(2, f"walle: {stuck_error(task, device_id)}\n".encode(errors="replace"))
    os._exit(StuckScriptError.exit_code)


def stuck_error(task: str, device_id: str) -> StuckScriptError:
    """Make the error for a script that cannot be stopped."""
    return StuckScriptError(
        f"task {task!r} is stuck in C code on device {device_id!r} and cannot be stopped: it is "
        "quarantined there; run the same command again to continue without it"
    )


class RunOptions(msgspec.Struct, frozen=True):
    """Options of one run."""

    data_dir: Path
    hosts: int
    """Device hosts that share the partitions, ≥ 1."""
    limit: int | None = None
    """Maximum number of rows to read in this run."""
    is_spread: bool = False
    """Whether hosts run on any node of a cluster, each with that node's data directory."""
    is_measured: bool = False
    """Whether the ledger of bytes also compares with compressed raw rows.

    The rows are then kept and compressed, which costs CPU.
    """
    on_stuck: Callable[[str, str], None] = end_process
    """Ends or restarts the process after a task stuck in C code was quarantined on a device.

    Called in a thread of the VMs; must not return.
    """
