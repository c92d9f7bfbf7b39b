"""How a process VM is confined, and the words where it cannot be."""

import logging
from typing import Final

import msgspec

from walle_stream.vm.limits import Confinement

_log = logging.getLogger(__name__)


class ProcessSettings(msgspec.Struct, frozen=True):
    """How a process VM is confined."""

    memory_bytes: int = 256 * 1024 * 1024
    """Private memory of the child, interpreter (15 MB) included; the largest
    batch and the largest result have the same bound each, a result's control
    words a sixteenth of it."""
    uids: tuple[int, int] = (2_000_000_000, 100_000)
    """First user id and count of those that children of a privileged host
    become, each another; they must belong to nobody."""
    required: frozenset[str] = frozenset()
    """Measures of ``guard.MEASURES`` without which no script runs."""
    off: frozenset[str] = frozenset()
    """Measures not to take: for a kernel on which one does harm, and for tests."""

    @classmethod
    def of(cls, confinement: Confinement) -> "ProcessSettings":
        """Return those of a task."""
        return cls(confinement.memory_bytes, required=frozenset(confinement.required))


_warned: Final[set[str]] = set()


def warn_of_missing(missing: set[str]) -> None:
    """Say which of ``guard.MEASURES`` are not in force, once per process and measure."""
    new = missing - _warned
    if new:
        _warned.update(new)
        _log.warning(
            "process VMs run without %s: this platform or this user lacks them; see "
            "docs/isolation.md",
            ", ".join(sorted(new)),
        )
