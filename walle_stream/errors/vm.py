"""Errors of VMs, and of the scripts and packages that run in them."""

from typing import ClassVar

from walle_stream.errors.base import WalleError


class VmError(WalleError):
    """Base of the errors of the virtual machines that run task scripts."""

    exit_code: ClassVar[int] = 5


class FrameError(VmError, ValueError):
    """A guest wrote a result frame that is truncated, too long or malformed.

    The batch is refused as a whole. Report the task's script.
    """


class IsolationError(VmError):
    """A task requires isolation measures that this machine or user does not have.

    Run the task where docs/isolation.md lists them, or remove them from ``isolation.require``.
    """

    exit_code: ClassVar[int] = 23

    def __init__(self, message: str = "", task: str = "", place: str = "") -> None:
        """Keep the task and its place in the definition, as ``FILE:LINE:COLUMN``."""
        super().__init__(message)
        self.args = (message, task, place)
        self.task = task
        self.place = place


class PackageError(VmError, ValueError):
    """A task package is altered, truncated or of another format, or its script may not run here.

    The message says what is wrong. Build the package again with ``walle task build``.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", file: str = "", member: str = "") -> None:
        """Keep the package's file and the faulty member; an empty member means the whole file."""
        super().__init__(message)
        self.args = (message, file, member)
        self.file = file
        self.member = member


class ScriptError(VmError):
    """A task's script is missing, is not Python, or has no ``run``.

    Correct the script at the named file and line.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str = "", task: str = "", file: str = "", line: int = 0) -> None:
        """Keep the place; lines count from 1, and 0 means unknown."""
        super().__init__(message)
        self.args = (message, task, file, line)
        self.task = task
        self.file = file
        self.line = line


class StuckScriptError(VmError):
    """A script loops inside C code, where it cannot be stopped.

    The process ends, and the next one continues without that task on that
    device. Correct the script, then delete ``quarantine.jsonl`` from the data
    directory.
    """


class VmClosedError(VmError):
    """A VM pool was called after it was closed.

    Open a new pool. Every run opens its own at its start.
    """


class VmCrashedError(VmError):
    """A virtual machine ended a call without its completion mark.

    The VM is destroyed, and the batch runs again in a new one.
    """

    is_retryable: ClassVar[bool] = True


class VmForkError(VmError):
    """A fork of a process with VMs was refused, because the child would crash at once.

    Use ``subprocess`` or multiprocessing's 'spawn', or fork before the pool is opened.
    """


class VmStartError(VmError):
    """This Python cannot make an isolated interpreter.

    Use CPython 3.13 or newer; the message says which part is missing.
    """
