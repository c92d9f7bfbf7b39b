"""The memory of this process and of its machine, and the system's limit for it."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - a fifth of a Path's time
            return int(statm.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def limit_data(limit_bytes: int) -> bool:
    """Limit the memory of this process, so that a single huge allocation fails by itself.

    The watchdog cannot stop such an allocation: it only checks at intervals, and C code cannot be
    interrupted. The limit counts private writable memory, touched or not (``RLIMIT_DATA``), so it
    is a quarter above the watchdog's. It comes on top of the memory in use, and holds for the
    whole process, so only programs that own their process may call this. Returns whether the limit
    is in force; only Linux counts this way.
    """
    if sys.platform != "linux":
        return False
    import resource  # noqa: PLC0415 - not on every platform

    try:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        bound = data_bytes() + limit_bytes + limit_bytes // 4
        soft = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    except (OSError, ValueError):
        return False
    return True


def data_bytes() -> int:
    """Return the private writable bytes of this process; 0 if the system does not report them."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def machine_bytes() -> int:
    """Return the memory limit of this process: the machine's, or its control group's."""
    bounds = [os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES]
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):
            bounds.append(int(Path(path).read_text(encoding="ascii")))
    return min(bounds)


# Windows has no sysconf; it imports this module, but runs no VMs
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
