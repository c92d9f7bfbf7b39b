"""A VM's life: start, calls, stops and end, common to interpreters and processes.

A caller writes the inbox, gives an order, checks the completion mark and reads the
outbox. The caller must hold the VM alone, and destroys it after any error. The two
subclasses differ in starting a guest (``_start``), reaching it (``order``,
``_resize``), telling it to stop (``_tell_to_stop``) and ending it (``_end``).
"""

import atexit
import os
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from typing import ClassVar, Final

from walle_stream.clock import monotonic_ms
from walle_stream.errors import FrameError, StopTimeoutError, VmStartError
from walle_stream.vm.frames import decode_behind_header, decode_results
from walle_stream.vm.guest.layout import (
    CALL,
    HEADER,
    INBOX,
    PENDING,
    REPEATED,
    STATUS_ASKS,
    STATUS_COMPLETE,
    STATUS_TOO_SMALL,
    WORD_BYTES,
)
from walle_stream.vm.program import CompiledProgram, script_error
from walle_stream.vm.results import DeviceGroup, GroupResult
from walle_stream.vm.services import HostServices

BUFFER_BYTES: Final = 256 * 1024
"""Size of the inbox and of the outbox of an idle VM."""

KEPT_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""A buffer that grew beyond this size is shrunk after the call."""

START_TIMEOUT_S: Final = 10.0
"""Longest time that starting a VM and loading a script may take."""

STOP_TIMEOUT_S: Final = 2.0
"""Longest wait for a script that was told to stop during its loading."""

DESTROY_TIMEOUT_S: Final = 10.0
"""Longest wait for the end of a VM."""

_BIND_GROUPS: Final[Sequence[DeviceGroup]] = (("", {}, ((0, 0, ()),)),)
_serials: Final = count(1)


class Machine(ABC):
    """A VM for one caller at a time, in any thread."""

    shares_memory: ClassVar[bool]
    """Whether the guest runs in this process."""

    _inbox: memoryview
    _outbox: memoryview

    def __init__(
        self, program: CompiledProgram, services: HostServices | None, max_buffer_bytes: int
    ) -> None:
        """Start no guest yet; inbox and outbox may grow to ``max_buffer_bytes`` each."""
        self._program = program
        self._services = services or HostServices()
        self._max_buffer_bytes = max_buffer_bytes
        self._groups: Sequence[DeviceGroup] = ()
        self.cpu_ms: Callable[[], float] = monotonic_ms
        """Clock of the VM's work in milliseconds, for differences."""
        self._number = 0
        self._lock = threading.Lock()
        self._is_ending = False
        self.serial = next(_serials)
        """Number of the VM, unique in this process."""
        self.calls = 0
        """Completed batches."""
        self.runs = 0
        """Runs in those batches, failed runs included."""
        self.was_stopped = False
        """Whether a run was asked to stop; the reader of this flag resets it."""
        self.is_worn = False
        """Whether the VM must not be reused after this call."""

    @property
    def task(self) -> str:
        """The task to which the VM is bound."""
        return self._program.task

    @property
    @abstractmethod
    def run_number(self) -> int:
        """Number of the current run, ascending over the VM's life; 0 when idle or ended."""

    @property
    def run_at_hand(self) -> tuple[str, int] | None:
        """Device and trigger position of the current run; None between runs."""
        # loading the script counts as the first run
        left = (self.run_number & ~REPEATED) - self.runs - 1
        for device_id, _, runs in self._groups:
            if 0 < left <= len(runs):
                return device_id, runs[left - 1][0]
            left -= len(runs)
        return None

    @property
    def crashed_run(self) -> tuple[str, int] | None:
        """Device and trigger position of the run that ended the VM; None if no run did."""
        return None

    @property
    def was_killed(self) -> bool:
        """Whether the host had to end the VM, because its run did not stop."""
        return False

    @property
    def is_alive(self) -> bool:
        """Whether a part of the VM still runs and cannot be ended."""
        return False

    def call(self, groups: Sequence[DeviceGroup], packed: bytes) -> list[GroupResult]:
        """Run a batch, packed by ``encode_groups``; blocks until the guest is done.

        Raises:
            VmCrashedError: The VM ended, or ended the call without its
                completion mark.
            FrameError: The result is malformed, or the result or the batch is
                too large.
        """
        size_bytes = INBOX.size + len(packed)
        if size_bytes > len(self._inbox):
            self._make_room(size_bytes, len(self._outbox))
        self._inbox[INBOX.size : size_bytes] = packed
        self._groups = groups
        status = self.order(CALL)
        while status == STATUS_ASKS:
            status = self._services.answer(self)
        if status == STATUS_TOO_SMALL:
            self._grow()
            status = self.order(PENDING)
        if status != STATUS_COMPLETE:
            raise FrameError(f"task {self._program.task!r}: a result frame has status {status}")
        results = decode_behind_header(groups, self._outbox, *self.heads())
        self.calls += 1
        for group in groups:
            self.runs += len(group[2])
        self._groups = ()
        if len(self._inbox) > KEPT_BUFFER_BYTES or len(self._outbox) > KEPT_BUFFER_BYTES:
            self._shrink()
        return results

    def stop_run(self, *, for_memory: bool = False) -> bool:
        """Stop the current run for its time or its memory: it fails, and the call continues.

        Any thread may call. Returns whether the guest was asked; the run stops at its next line of
        Python.
        """
        with self._lock:
            if self._is_ending:
                return False
            self.was_stopped = True  # set first: the run may end before this returns
            return self._tell_to_stop(for_memory=for_memory)

    def destroy(self) -> None:
        """End the VM and wait for its end; may be called twice.

        A guest that does not return from its interpreter keeps its thread and its memory.
        """
        with self._lock:
            if self._is_ending:
                return
            self._is_ending = True
        _machines.discard(self)
        self._end()
        if self.is_alive:
            _left.append(self)

    # For the services that answer a run

    @abstractmethod
    def order(self, command: int) -> int:
        """Give an order and return the status of the guest's reply; only during a call.

        Raises:
            VmCrashedError: The guest did not reply.
            FrameError: The reply is too large.
        """

    @abstractmethod
    def heads(self) -> tuple[int, int]:
        """Return the outbox's third and fourth number, as of the guest's last reply."""

    def buffers(self) -> tuple[memoryview, memoryview]:
        """Return inbox and outbox."""
        return self._inbox, self._outbox

    # Parts that differ between interpreters and processes

    @abstractmethod
    def _start(self) -> None:
        """Start the guest, and load the script if there is one."""

    @abstractmethod
    def _has_started(self, limit_s: float) -> bool:
        """Wait for the guest to start or load; raises the guest's error. False at the limit."""

    @abstractmethod
    def _tell_to_stop(self, *, for_memory: bool) -> bool:
        """Ask the current run to stop, if there is a guest; called under the lock."""

    @abstractmethod
    def _resize(self, inbox_bytes: int, outbox_bytes: int) -> None:
        """Give host and guest buffers of at least these sizes; a waiting result is kept."""

    @abstractmethod
    def _shrink(self) -> None:
        """Free the memory of large buffers."""

    @abstractmethod
    def _end(self) -> None:
        """End the guest, wait for its end, and free all resources; called once."""

    @abstractmethod
    def _hurry(self) -> None:
        """Stop the current run, if any, without waiting, because the process ends."""

    # Common parts

    def _begin(self) -> None:
        _machines.add(self)
        try:
            self._start()
        except BaseException:
            self.destroy()
            raise

    def _await_start(self) -> None:
        for limit_s in (START_TIMEOUT_S, STOP_TIMEOUT_S):
            if self._has_started(limit_s):
                return
            if not self.stop_run():
                break
        raise VmStartError(
            f"a VM for task {self._program.task!r} did not start in {START_TIMEOUT_S:g} s: "
            "find the slow code outside of the script's functions"
        )

    def _check_bound(self) -> None:
        # at its binding the guest wrote a result: success of the script's body, or its error
        program = self._program
        [group] = decode_results(_BIND_GROUPS, self._outbox)
        [run] = group.runs
        if not run.ok:
            place = re.match(rf"{re.escape(program.file_name)}:(\d+): ", run.message)
            text = f"raises when loaded: {run.message[place.end() if place else 0 :]}"
            raise script_error(program, int(place[1]) if place else 0, text)

    def _grow(self) -> None:
        word_count, body_bytes = self.heads()
        needed = HEADER.size + WORD_BYTES * word_count + body_bytes
        if needed <= len(self._outbox):
            raise FrameError(
                f"task {self._program.task!r}: a result frame fits, but claims not to fit"
            )
        self._make_room(len(self._inbox), needed)

    def _make_room(self, inbox_bytes: int, outbox_bytes: int) -> None:
        limit = self._max_buffer_bytes
        if max(inbox_bytes, outbox_bytes) > limit:
            raise FrameError(
                f"task {self._program.task!r}: a call of {inbox_bytes} bytes or a result of "
                f"{outbox_bytes} is refused, at most {limit} are allowed: emit less, or hand "
                "over smaller batches"
            )
        self._resize(inbox_bytes, outbox_bytes)


# strong references: a process that ends with live VMs may abort, so all VMs end before exit
_machines: Final[set[Machine]] = set()
_left: Final[list[Machine]] = []  # destroyed VMs whose guests did not return
_owner_pid: Final = os.getpid()


def _destroy_all() -> None:
    if os.getpid() != _owner_pid:  # a fork of the host owns no VMs
        return
    machines = list(_machines)
    for machine in machines:
        machine._hurry()  # noqa: SLF001 - the class's own module
    for machine in machines:
        machine.destroy()
    if any(machine.is_alive for machine in _left):
        # At its own end Python would wait for the guest forever, or crash. This is the
        # last chance to end in order.
        sys.stderr.write("walle: a script does not end: the process ends without it\n")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(StopTimeoutError.exit_code)


atexit.register(_destroy_all)
