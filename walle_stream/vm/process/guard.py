"""Confinement of a process VM's child by itself, before it sees a script.

This module runs inside the child with the standard library alone, after all
imports that the script may need. From then on the process can use its
descriptors and its memory, and hardly anything else. The measures cannot be
undone. A measure that a platform lacks is left out and reported to the host,
which warns or refuses.
"""

import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

DIES_WITH_HOST: Final = "dies_with_host"
"""The kernel kills the child when the host's process ends."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2

# classic BPF: load a word, compare, test bits, return
_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_HAS_BITS: Final = 0x45
_RETURN: Final = 0x06
_KILL: Final = 0x8000_0000
_REFUSE: Final = 0x0005_0000 | 1  # EPERM
_ALLOW: Final = 0x7FFF_0000
_AT_NUMBER, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16
_PROT_EXEC: Final = 4

# System calls of a running guest by architecture: clocks, locks, memory, signals and its
# descriptors. All others are refused, also those that kernels add.
_PLAIN_CALLS: Final = {
    "x86_64": {
        *(0, 1, 3, 5, 8, 17),  # read write close fstat lseek pread64
        *(7, 271, 219),  # poll ppoll restart_syscall
        *(11, 12, 25, 28),  # munmap brk mremap madvise
        *(13, 14, 15, 131),  # rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack
        *(24, 35, 39, 60, 186, 231),  # sched_yield nanosleep getpid exit gettid exit_group
        *(96, 98, 201, 202, 228, 229, 230),  # time of day, getrusage, futex, clocks
        318,  # getrandom
    },
    "aarch64": {
        *(63, 64, 57, 80, 62, 67),
        *(73, 128),
        *(215, 214, 216, 233),
        *(134, 135, 139, 132),
        *(124, 101, 172, 93, 178, 94),
        *(169, 165, 98, 113, 114, 115),
        278,
    },
}
_AUDIT_ARCHITECTURES: Final = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
# mmap and mprotect must not make new code; tgkill is for abort() in the child itself
_MAPPING_CALLS: Final = {"x86_64": (9, 10), "aarch64": (222, 226)}
_SIGNAL_CALL: Final = {"x86_64": 234, "aarch64": 131}

_FIRST_FREE_FD: Final = 3


class GuardSettings(NamedTuple):
    """The host's settings for a child; sent to it as a plain tuple."""

    host_pid: int
    """The process that the child must not outlive."""
    memory_bytes: int
    """Private memory, interpreter included."""
    shared_bytes: int
    """Further address space, for buffers shared with the host."""
    uid: int
    """User and group to become; -1 to stay."""
    off: tuple[str, ...]
    """Measures not to take."""


def tie_to_host(host_pid: int) -> bool:
    """Tie the child's life to the host's, or exit if the host is gone; return success."""
    done = _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != host_pid:
        os._exit(0)
    return done


def lock_down(settings: GuardSettings, fds: Collection[int]) -> tuple[str, ...]:
    """Take all measures of this platform for the process's life; return those in force."""
    return tuple(
        name for name, take in _STEPS.items() if name not in settings.off and take(settings, fds)
    )


def filter_program(architecture: str, pid: int) -> bytes:
    """Assemble the BPF filter of system calls; only the process ``pid`` may be signalled.

    The architecture is ``x86_64`` or ``aarch64``.
    """
    one = struct.Struct("<HBBI").pack
    code = [
        one(_LOAD, 0, 0, _AT_ARCHITECTURE),
        one(_EQUAL, 1, 0, _AUDIT_ARCHITECTURES[architecture]),
        one(_RETURN, 0, 0, _KILL),
        one(_LOAD, 0, 0, _AT_NUMBER),
    ]
    for number in sorted(_PLAIN_CALLS[architecture]):
        code += (one(_EQUAL, 0, 1, number), one(_RETURN, 0, 0, _ALLOW))
    for number in _MAPPING_CALLS[architecture]:
        code += (
            one(_EQUAL, 0, 4, number),
            one(_LOAD, 0, 0, _AT_ARGUMENTS + 2 * 8),
            one(_HAS_BITS, 0, 1, _PROT_EXEC),
            one(_RETURN, 0, 0, _REFUSE),
            one(_RETURN, 0, 0, _ALLOW),
        )
    code += (
        one(_EQUAL, 0, 4, _SIGNAL_CALL[architecture]),
        one(_LOAD, 0, 0, _AT_ARGUMENTS),
        one(_EQUAL, 1, 0, pid),
        one(_RETURN, 0, 0, _REFUSE),
        one(_RETURN, 0, 0, _ALLOW),
        one(_RETURN, 0, 0, _REFUSE),
    )
    return b"".join(code)


def _prctl(option: int, *values: int) -> bool:
    if sys.platform != "linux":
        return False
    import ctypes  # noqa: PLC0415 - the host needs the names of this module, never ctypes

    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0)[:4]]
    return bool(ctypes.CDLL(None).prctl(option, *arguments) == 0)


def _filter_calls() -> bool:
    architecture = os.uname().machine
    if sys.platform != "linux" or architecture not in _PLAIN_CALLS or sys.maxsize < 2**32:
        return False
    import ctypes  # noqa: PLC0415 - as above

    # no ctypes.Structure: it imports modules from files, which cannot be opened any more
    code = filter_program(architecture, os.getpid())
    kept = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(kept))
    filter_ = ctypes.create_string_buffer(program, len(program))
    return _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(filter_))


def _limit(*limits: tuple[int, int]) -> bool:
    try:
        for kind, value in limits:
            resource.setrlimit(kind, (value, value))
    except (OSError, ValueError):
        return False
    return True


def _limit_memory(settings: GuardSettings) -> bool:
    # the limit of data is the main one; the address space limits shared mappings, too
    if sys.platform != "linux":
        return False
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - no pathlib in the child
        mapped_bytes = int(statm.read().split()[0]) * resource.getpagesize()
    whole_bytes = mapped_bytes + settings.memory_bytes + settings.shared_bytes
    return _limit((resource.RLIMIT_DATA, settings.memory_bytes), (resource.RLIMIT_AS, whole_bytes))


def _limit_files(fds: Iterable[int]) -> bool:
    return _limit(
        (resource.RLIMIT_NOFILE, max(fds, default=_FIRST_FREE_FD - 1) + 1),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    )


def _leave_network() -> bool:
    if sys.platform != "linux":
        return False
    try:
        os.unshare(os.CLONE_NEWNET)
    except OSError:
        return False
    return True


def _become(uid: int) -> bool:
    if uid < 0:
        return False
    try:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError:
        return False
    return True


_STEPS: Final[dict[str, Callable[[GuardSettings, Collection[int]], bool]]] = {
    "memory_limit": lambda settings, _: _limit_memory(settings),
    "file_limits": lambda _, fds: _limit_files(fds),
    "own_network": lambda *_: _leave_network(),
    "own_user": lambda settings, _: _become(settings.uid),
    "no_processes": lambda *_: _limit((resource.RLIMIT_NPROC, 0)) and os.getuid() != 0,
    "not_dumpable": lambda *_: _prctl(_PR_SET_DUMPABLE, 0),
    # a change of user makes the kernel forget the tie to the host, so it is made again
    DIES_WITH_HOST: lambda settings, _: tie_to_host(settings.host_pid),
    "no_new_privileges": lambda *_: _prctl(_PR_SET_NO_NEW_PRIVS, 1),
    "syscall_filter": lambda *_: _filter_calls(),
}
MEASURES: Final = tuple(_STEPS)
"""All measures, in the order in which the child takes them."""
