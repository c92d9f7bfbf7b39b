"""What all VMs have in common, whether an interpreter's thread or a process.

A caller holds a VM alone while it calls it, and destroys it after any error.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import count
from typing import Final

from walle_stream.vm.guest.layout import AGAIN
from walle_stream.vm.program import CompiledProgram
from walle_stream.vm.results import DeviceGroup, GroupResult

_serials: Final = count(1)


class Machine(ABC):
    """A VM. One caller at a time, in any thread."""

    def __init__(self, program: CompiledProgram) -> None:
        """Begin to count.

        Args:
            program: The task it is bound to.
        """
        self._program = program
        self._groups: Sequence[DeviceGroup] = ()
        self.serial = next(_serials)
        """Which VM of this process."""
        self.calls = 0
        """Batches that came back."""
        self.runs = 0
        """Runs in those batches, failed ones included."""
        self.was_stopped = False
        """Whether a run was asked to stop; whoever looks sets it back."""
        self.is_worn = False
        """Whether it should not be used again after this call."""

    @property
    def task(self) -> str:
        """The task it is bound to."""
        return self._program.task

    @property
    @abstractmethod
    def run_number(self) -> int:
        """Number of the run at hand, ascending for the VM's life; 0 when idle."""

    @property
    def cpu_ms(self) -> float:
        """CPU time that it has used, milliseconds; 0 where it has no clock of its own."""
        return 0.0

    @property
    def run_at_hand(self) -> tuple[str, int] | None:
        """Device and trigger position of the run at hand, None between runs."""
        # loading the script counts as the first
        left = (self.run_number & ~AGAIN) - self.runs - 1
        for device_id, _, runs in self._groups:
            if 0 < left <= len(runs):
                return device_id, runs[left - 1][0]
            left -= len(runs)
        return None

    @property
    def crashed_run(self) -> tuple[str, int] | None:
        """Device and trigger position of the run that ended the VM, if it was one."""
        return None

    @property
    def was_killed(self) -> bool:
        """Whether the host had to end it: the run did not obey."""
        return False

    @abstractmethod
    def call(self, groups: Sequence[DeviceGroup], packed: bytes) -> list[GroupResult]:
        """Run a batch; blocks until the guest is done.

        Args:
            groups: The batch.
            packed: The same, by ``encode_groups``.

        Returns:
            One result per group, in order.

        Raises:
            VmCrashedError: The VM ended, or ended the call without its
                completion mark.
            FrameError: The result is malformed or too large, or the batch is.
        """

    @abstractmethod
    def stop_run(self, *, for_memory: bool = False) -> bool:
        """Stop the run at hand: it fails, the call goes on; any thread.

        Args:
            for_memory: Why: the process has too much, or the run takes too long.

        Returns:
            Whether the guest was asked; it obeys at its next line of Python.
        """

    @abstractmethod
    def destroy(self) -> None:
        """End it and wait for its end; may be called twice."""

    def _count(self, groups: Sequence[DeviceGroup]) -> None:
        self.calls += 1
        for group in groups:
            self.runs += len(group[2])
