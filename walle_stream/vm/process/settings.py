"""Settings of a process VM's confinement, and the warning about missing measures."""

import logging
from typing import Final

import msgspec

from walle_stream.vm.limits import Confinement

_log = logging.getLogger(__name__)


class ProcessSettings(msgspec.Struct, frozen=True):
    """Confinement of a process VM."""

    memory_bytes: int = 256 * 1024 * 1024
    """Private memory of the child, interpreter (15 MB) included. A batch and a
    result have the same bound each, and a result's control words a sixteenth."""
    uids: tuple[int, int] = (2_000_000_000, 100_000)
    """First user id and number of ids for the children of a privileged host. Each
    child gets its own id; no other user may have these ids."""
    required: frozenset[str] = frozenset()
    """Measures of ``guard.MEASURES`` without which no script runs."""
    off: frozenset[str] = frozenset()
    """Measures to leave out, for a kernel on which they do harm, and for tests."""

    @classmethod
    def of(cls, confinement: Confinement) -> "ProcessSettings":
        """Return the settings of a task."""
        return cls(confinement.memory_bytes, required=frozenset(confinement.required))


_warned: Final[set[str]] = set()


def warn_of_missing(missing: set[str]) -> None:
    """Log missing ``guard.MEASURES``, once per process and measure."""
    new = missing - _warned
    if new:
        _warned.update(new)
        _log.warning(
            "process VMs run without %s: this platform or this user lacks them; see "
            "docs/isolation.md",
            ", ".join(sorted(new)),
        )
