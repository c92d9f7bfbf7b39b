"""A version of a task on a device, from the definition or installed later."""

from collections.abc import Mapping

import msgspec


class InstalledTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """One version of a task on a device."""

    version: str
    """Version that every feature carries."""
    triggers: tuple[tuple[str, ...], ...]
    program: str
    """Name in the pool of VMs, unique for each version."""
    state_version: int = 1
    """Version of the layout of its states."""
    fields: tuple[str, ...] | None = None
    """Contents of events that the script reads; all when None."""
    pages: tuple[str, ...] | None = None
    """Pages whose events wake it; all pages when None."""
    on_error: tuple[int, int, bool] = (1, 100, True)
    """Attempts, pause in milliseconds, and whether a failed run leaves a dead letter."""
    package: str = ""
    """SHA-256 of its package; empty for a task of the definition."""
    resources: Mapping[str, str] = {}
    """SHA-256 of files that only this device has, by the name that the script uses."""
    origin: str = ""
    """The installer's name for it; empty for a task of the definition."""
    is_signed: bool = False
    """Whether a checked signature covers its package."""
    takes_messages: bool = False
    """Whether messages of the cloud wake it."""
