"""What a device has of a task, whoever installed it."""

from collections.abc import Mapping

import msgspec


class InstalledTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a task, as a device has it."""

    version: str
    """Stands beside every feature."""
    triggers: tuple[tuple[str, ...], ...]
    program: str
    """What the pool of VMs knows it by: no two versions have the same."""
    state_version: int = 1
    """Layout of its states."""
    fields: tuple[str, ...] | None = None
    """Contents of events that the script reads; all when None."""
    pages: tuple[str, ...] | None = None
    """Only events on these pages wake it; on any page when None."""
    on_error: tuple[int, int, bool] = (1, 100, True)
    """Attempts, pause in milliseconds, whether a dead letter is left."""
    package: str = ""
    """SHA-256 of its package; empty for a task of the definition."""
    resources: Mapping[str, str] = {}
    """SHA-256 of files that only this device has, by the name that the script uses."""
    origin: str = ""
    """What installed it calls it; empty for a task of the definition."""
    is_signed: bool = False
    """Whether a signature that was checked covers its package."""
    takes_messages: bool = False
    """Whether messages of the cloud wake it."""
