"""Process VMs for calls that may have ended the last process.

A script can end the process that runs it, e.g. by overflowing the stack in C.
Where it may have, the task's runs go to process VMs for a while, whatever its
isolation: there it ends its VM alone, and is blamed.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Final

from walle_stream.errors import VmStartError, WalleError
from walle_stream.vm.machine import Machine
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program
from walle_stream.vm.services import HostServices

_log = logging.getLogger(__name__)

_PROBE: Final = TaskProgram("probe", "0", "def run(ctx, page):\n    pass\n", "probe.py")


@cache
def can_contain() -> bool:
    """Whether this platform has process VMs; tried once, logged where not."""
    try:
        make_contained(compile_program(_PROBE)).destroy()
    except (ImportError, OSError, WalleError) as error:
        _log.warning("what may end this process runs in it, without process VMs: %s", error)
        return False
    return True


@cache
def measures_here() -> frozenset[str]:
    """Return the measures that process VMs take on this machine; starts one, once.

    Returns:
        Of ``process.guard.MEASURES``; none where there are no process VMs.
    """
    try:
        # imported where it is used: it needs POSIX
        from walle_stream.vm.process.machine import ProcessMachine  # noqa: PLC0415

        machine = ProcessMachine(compile_program(_PROBE))
    except (ImportError, OSError, WalleError):
        return frozenset()
    machine.destroy()
    return frozenset(machine.measures)


def check_bodies(
    programs: Sequence[CompiledProgram], memory_bytes: int, services: HostServices
) -> None:
    """Load scripts in process VMs first, because loading one may have ended the last process.

    Args:
        programs: The tasks'.
        memory_bytes: See ``make_contained``.
        services: See ``make_contained``.

    Raises:
        VmStartError: One does not survive it.
        ScriptError: One's body raises.
    """
    _log.warning("the last process ended while it loaded scripts: they are tried in process VMs")
    if not can_contain():
        return
    for program in programs:
        try:
            make_contained(program, memory_bytes, services).destroy()
        except VmStartError as error:
            raise VmStartError(
                f"{program.file}: task {program.task!r} cannot be loaded and may have ended the "
                f"last process: correct what it does outside of its functions ({error})"
            ) from error


def make_contained(
    program: CompiledProgram, memory_bytes: int = 0, services: HostServices | None = None
) -> Machine:
    """Make a process VM for a task of any isolation.

    Args:
        program: The task's.
        memory_bytes: Bound of the host's memory: what fits there must fit here, or
            containing a run would change its result.
        services: What the host does for runs that ask.

    Raises:
        VmStartError: It cannot be started.
    """
    # imported where it is used: it needs POSIX
    from walle_stream.vm.process.machine import ProcessMachine  # noqa: PLC0415
    from walle_stream.vm.process.settings import ProcessSettings  # noqa: PLC0415

    usual = ProcessSettings()
    settings = ProcessSettings(memory_bytes=max(usual.memory_bytes, memory_bytes))
    return ProcessMachine(program, settings, services)
