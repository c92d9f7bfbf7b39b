"""Errors of VMs, and of what runs in them."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class VmError(WalleError):
    """Base of the errors of the virtual machines that run task scripts."""

    exit_code: ClassVar[int] = 5


class FrameError(VmError, ValueError):
    """A guest wrote a result frame that is cut, too long or malformed.

    The batch is refused as a whole; report the task's script.
    """


class IsolationError(VmError):
    """A task requires measures of isolation that this machine, or this user, does not have.

    Run it where they are, as docs/isolation.md says, or take them out of ``isolation.require``.
    """

    exit_code: ClassVar[int] = 23

    def __init__(self, message: str = "", task: str = "", place: str = "") -> None:
        """Keep the place: ``FILE:LINE:COLUMN`` of the definition."""
        super().__init__(message)
        self.args = (message, task, place)
        self.task = task
        self.place = place


class PackageError(VmError, ValueError):
    """A task package is altered, cut, of another format, or has a script that may not run here.

    Build it again with ``walle task build``; the message says what is wrong.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", file: str = "", member: str = "") -> None:
        """Keep the place: file and part of the package, empty when it is the whole."""
        super().__init__(message)
        self.args = (message, file, member)
        self.file = file
        self.member = member


class ScriptError(VmError):
    """A task's script cannot be loaded: missing, not Python, or no ``run``.

    Correct the script at the file and line named.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", task: str = "", file: str = "", line: int = 0) -> None:
        """Keep the place, from line 1; 0 when unknown."""
        super().__init__(message)
        self.args = (message, task, file, line)
        self.task = task
        self.file = file
        self.line = line


class StuckScriptError(VmError):
    """A script loops inside C code, where nothing can stop it.

    The process ends, and the next one goes on without that task on that
    device; correct the script, then delete ``quarantine.jsonl`` from the data
    directory.
    """


class VmClosedError(VmError):
    """A call came after the pool of VMs was closed.

    Open a new pool; a run does so when it starts.
    """


class VmCrashedError(VmError):
    """A virtual machine ended a call without its completion mark.

    The machine is destroyed and the batch is run again in a new one.
    """

    is_retryable: ClassVar[bool] = True


class VmForkError(VmError):
    """A process with virtual machines was to be forked; the child would have died at once.

    Use ``subprocess`` or multiprocessing's 'spawn', or fork before the pool is opened.
    """


class VmStartError(VmError):
    """An isolated interpreter could not be made on this Python.

    Use CPython 3.13 or newer; the message says which part is missing.
    """
