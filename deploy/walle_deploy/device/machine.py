"""Facts about a machine, for the profile of a device on it."""

import os
import platform
import sys
from typing import Final, Literal

import msgspec

from walle_deploy.model.profile import DeviceProfile

_LOW: Final = (3_000, 4)
_HIGH: Final = (7_000, 8)


def this_machine(device: str) -> DeviceProfile:
    """Return a profile of this machine; unknown values stay empty."""
    memory_mb = _memory_mb()
    return with_interpreter(
        DeviceProfile(
            device,
            os=platform.system().lower(),
            os_version=platform.release()[:128],
            performance=performance_class(memory_mb, os.process_cpu_count() or 0),
            memory_mb=memory_mb,
        )
    )


def with_interpreter(profile: DeviceProfile) -> DeviceProfile:
    """Return the profile, with this process's Python if it names none."""
    if profile.interpreter:
        return profile
    return msgspec.structs.replace(profile, interpreter=sys.implementation.cache_tag or "")


def performance_class(memory_mb: int, cpu_count: int) -> Literal["", "low", "middle", "high"]:
    """Return the class of a machine, empty if a number is unknown (0).

    Returns:
        ``low`` below 3,000 MB or 4 CPUs, ``high`` from 7,000 MB and 8 CPUs on.
    """
    if not memory_mb or not cpu_count:
        return ""
    if memory_mb < _LOW[0] or cpu_count < _LOW[1]:
        return "low"
    return "high" if memory_mb >= _HIGH[0] and cpu_count >= _HIGH[1] else "middle"


def _memory_mb() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    except (AttributeError, OSError, ValueError):
        return 0  # some systems do not report it
