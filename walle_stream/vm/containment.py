"""Process VMs for calls that may have ended the last process.

A script can end the process that runs it, for example by a stack overflow in C.
If a task may have done so, its runs go to process VMs for a while, whatever its
isolation. There such a run ends only its VM, and the pool knows the device.
"""

import logging
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from walle_stream.errors import VmStartError, WalleError
from walle_stream.vm.program import CompiledProgram, TaskProgram, compile_program
from walle_stream.vm.services import HostServices

if TYPE_CHECKING:
    from walle_stream.vm.process.machine import ProcessMachine

_log = logging.getLogger(__name__)

_PROBE: Final = TaskProgram("probe", "0", "def run(ctx, page):\n    pass\n", "probe.py")


@cache
def measures_here() -> frozenset[str] | None:
    """Return the ``process.guard.MEASURES`` of process VMs here; the first call starts a VM.

    The result is None if process VMs do not work here; the log says why.
    """
    try:
        machine = make_contained(compile_program(_PROBE))
    except (ImportError, OSError, WalleError) as error:
        _log.warning(
            "process VMs do not work here, so runs that may end a process are not contained: %s",
            error,
        )
        return None
    machine.destroy()
    return frozenset(machine.measures)


def check_bodies(
    programs: Sequence[CompiledProgram], memory_bytes: int, services: HostServices
) -> None:
    """Load scripts in process VMs first, because loading one may have ended the last process.

    Raises:
        VmStartError: A script ends its VM when it is loaded.
        ScriptError: A script's body raises.
    """
    _log.warning("the last process ended while it loaded scripts: process VMs load them first")
    if measures_here() is None:
        return
    for program in programs:
        try:
            make_contained(program, memory_bytes, services).destroy()
        except VmStartError as error:
            raise VmStartError(
                f"{program.file}: task {program.task!r} cannot be loaded and may have ended the "
                f"last process: correct its code outside of functions ({error})"
            ) from error


def make_contained(
    program: CompiledProgram, memory_bytes: int = 0, services: HostServices | None = None
) -> "ProcessMachine":
    """Make a process VM for a task of any isolation.

    ``memory_bytes`` is the bound of the host's memory. A run that fits there must fit here, or
    containment would change its result.
    """
    # imported here, because it needs POSIX
    from walle_stream.vm.process.machine import ProcessMachine  # noqa: PLC0415
    from walle_stream.vm.process.settings import ProcessSettings  # noqa: PLC0415

    usual_bytes = ProcessSettings().memory_bytes
    settings = ProcessSettings(memory_bytes=max(usual_bytes, memory_bytes))
    return ProcessMachine(program, settings, services)
