"""A VM in its own process: the guest library behind a process boundary.

A pool uses it like a ``VirtualMachine``, with the same guest and the same frames.
It also stops a run that loops inside C code or takes too much memory: the run ends
with its process. A script that gets past the guards of its interpreter still
cannot open a file, reach the network, start a program or signal another process.
``docs/isolation.md`` lists the measures of each platform.

The caller writes the inbox, rings, and waits for the ring back or the child's end.
There is no thread. A child that is silent for longer than its task's limits is
killed, so no child can make a call hang.
"""

import os
import select
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from walle_stream.clock import cpu_clock_of_process
from walle_stream.errors import FrameError, VmCrashedError, VmStartError
from walle_stream.vm.guest.layout import (
    HEADER,
    INBOX,
    LEAVE,
    MAGIC,
    REPEATED,
    RING,
    STATUS_COMPLETE,
    STATUS_TOO_SMALL,
    WORD_BYTES,
)
from walle_stream.vm.machine import BUFFER_BYTES, DESTROY_TIMEOUT_S, KEPT_BUFFER_BYTES, Machine
from walle_stream.vm.process.child import CONTROL, CONTROL_BYTES, STOP_SIGNAL, TEXT_AT
from walle_stream.vm.process.guard import MEASURES, GuardSettings
from walle_stream.vm.process.memory import SharedMemory
from walle_stream.vm.process.settings import ProcessSettings, warn_of_missing
from walle_stream.vm.process.start import start_child
from walle_stream.vm.process.users import return_uid, take_uid
from walle_stream.vm.program import CompiledProgram
from walle_stream.vm.results import DeviceGroup, GroupResult
from walle_stream.vm.services import HostServices

OBEY_TIMEOUT_S: Final = 1.0
"""Time after which a run that was told to stop is killed with its process. It is below
the watchdog's ``STUCK_AFTER_MS``, so that a process VM never ends its host."""

_NO_HEADER: Final = bytes(HEADER.size)
_NO_PULSE: Final = memoryview(bytes(CONTROL.size)).cast("Q")
_WORDS_MAX_CHARACTERS: Final = 500
# a control word becomes an integer of 36 bytes in the host: a frame of control words alone
# would take nine times its size
_WORDS_SHARE: Final = 16


class ProcessMachine(Machine):
    """A VM in a process, for one caller at a time, in any thread."""

    shares_memory = False

    def __init__(
        self,
        program: CompiledProgram,
        settings: ProcessSettings | None = None,
        services: HostServices | None = None,
    ) -> None:
        """Start the child and load the program; ``settings`` override its confinement.

        Raises:
            VmStartError: The child could not be started, did not get ready, or
                a required measure is missing.
            ScriptError: The script's body raised.
        """
        settings = settings or ProcessSettings.of(program.confinement)
        unknown = (settings.required | settings.off) - set(MEASURES)
        if unknown:
            raise VmStartError(
                f"task {program.task!r}: unknown measures {sorted(unknown)}: known are {MEASURES}"
            )
        super().__init__(program, services, settings.memory_bytes)
        self._settings = settings
        self._heads = (0, 0)
        self._call_lock = threading.Lock()
        self._asked_number = 0
        self._killed: str | None = None
        self._killed_run: tuple[str, int] | None = None
        self.measures: tuple[str, ...] = ()
        """The measures in force, as the child reported before it saw the script."""
        self._uid = take_uid(*settings.uids)
        self._control = SharedMemory(CONTROL_BYTES)
        self._memories = (SharedMemory(BUFFER_BYTES), SharedMemory(BUFFER_BYTES))
        self._inbox, self._outbox = (memory.view for memory in self._memories)
        self._runs = self._control.view[: CONTROL.size].cast("Q")
        # pipes in place of the eventfds of VMs in the host: a pipe shows the end of its other
        # side, and a child cannot make the host's side block
        self._wake_child_fd, self._wake_fd = os.pipe()
        self._done_fd, self._done_child_fd = os.pipe()
        os.set_blocking(self._wake_fd, False)
        self._pid_fd = -1
        self._child: subprocess.Popen[bytes] | None = None
        self._poll = select.poll()
        self._begin()

    def call(self, groups: Sequence[DeviceGroup], packed: bytes) -> list[GroupResult]:
        """Run a batch; blocks until the guest is done or the child has ended.

        Raises:
            VmCrashedError: The child ended, was killed, or ended the call
                without its completion mark.
            FrameError: The result is malformed, or the result or the batch is
                too large.
        """
        with self._call_lock:
            if self._is_ending:
                raise VmCrashedError(f"task {self._program.task!r}: the VM is destroyed")
            return super().call(groups, packed)

    def kill(self, reason: str = "it was killed") -> None:
        """Kill the child at once, so that its call raises ``VmCrashedError``; any thread."""
        with self._lock:
            child = self._child
            if child is None or self._is_ending or self._killed is not None:
                return
            self._killed_run = self.run_at_hand
            self._killed = reason
        child.kill()

    @property
    def crashed_run(self) -> tuple[str, int] | None:
        """Device and trigger position of the current run at the child's end."""
        if self._killed is not None:
            return self._killed_run
        return self.run_at_hand

    @property
    def was_killed(self) -> bool:
        """Whether the host had to kill the child, because its run did not stop."""
        return self._killed is not None

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid if self._child is not None else 0

    @property
    def run_number(self) -> int:
        """Number of the current run, ascending over the VM's life; 0 when idle or ended."""
        return 0 if self._killed is not None else int(self._runs[0])

    def _tell_to_stop(self, *, for_memory: bool) -> bool:  # noqa: ARG002 - the system limits it
        # a run that does not stop is inside C code, and its process is killed
        if self._child is None or self._killed is not None:
            return False
        number = self.run_number
        if number and number != self._asked_number:
            self._asked_number = number
            timer = threading.Timer(OBEY_TIMEOUT_S, self._kill_run, (number,))
            timer.daemon = True
            timer.start()
        self._child.send_signal(STOP_SIGNAL)
        return True

    # Start

    def _start(self) -> None:
        with self._call_lock:
            self._start_child()

    def _start_child(self) -> None:
        settings, program = self._settings, self._program
        CONTROL.pack_into(self._control.view, 0, 0, len(self._inbox), len(self._outbox), 0)
        guard = GuardSettings(
            host_pid=os.getpid(),
            memory_bytes=settings.memory_bytes,
            # for a moment, old and new buffers exist side by side
            shared_bytes=4 * settings.memory_bytes,
            uid=self._uid,
            off=tuple(sorted(settings.off)),
        )
        memories = (self._control, *self._memories)
        fds = (*(memory.fd for memory in memories), self._wake_child_fd, self._done_child_fd)
        try:
            self._child = start_child(guard, settings.required, fds, program.packed)
        except OSError as error:
            raise VmStartError(
                f"a process for task {program.task!r} could not be started ({error}): "
                "free processes, descriptors or memory"
            ) from error
        self._close_child_ends()  # from now on the pipes end with the child
        self._poll.register(self._done_fd, select.POLLIN)
        if hasattr(os, "pidfd_open"):
            self._pid_fd = os.pidfd_open(self._child.pid)
            self.cpu_ms = cpu_clock_of_process(self._child.pid)
            self._poll.register(self._pid_fd, select.POLLIN)
        self._await_start()
        self.measures = self._taken_measures()
        warn_of_missing(set(MEASURES) - settings.off - set(self.measures))
        self._check_bound()

    def _taken_measures(self) -> tuple[str, ...]:
        mask = CONTROL.unpack_from(self._control.view)[3]
        return tuple(name for at, name in enumerate(MEASURES) if mask >> at & 1)

    def _close_child_ends(self) -> None:
        for fd in (self._wake_child_fd, self._done_child_fd):
            if fd >= 0:
                os.close(fd)
        self._wake_child_fd = self._done_child_fd = -1

    def _has_started(self, limit_s: float) -> bool:
        task = self._program.task
        try:
            return self._wait(limit_s)
        except VmCrashedError as error:
            taken = self._taken_measures()
            missing = sorted(self._settings.required - set(taken))
            if taken and missing:
                raise VmStartError(
                    f"task {task!r}: this platform lacks required measures of process "
                    f"isolation: {missing}; see docs/isolation.md"
                ) from error
            raise VmStartError(
                f"a process VM for task {task!r} did not start ({self._last_words()}): "
                "report it with the script"
            ) from error

    def _hurry(self) -> None:
        self.kill("its host ends")

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
        with self._call_lock:  # a running call or start has seen the child's end by now
            if self._child is not None:
                self._child.kill()  # it may have been started meanwhile
                with suppress(subprocess.TimeoutExpired):  # the kernel may delay its end
                    self._child.wait(DESTROY_TIMEOUT_S)
            self._runs = _NO_PULSE
            for memory in (self._control, *self._memories):
                memory.close()
            self._close_child_ends()
            for fd in (self._wake_fd, self._done_fd, self._pid_fd):
                if fd >= 0:
                    os.close(fd)
        return_uid(self._uid)

    # Calls

    def order(self, command: int) -> int:  # noqa: D102 - inherited
        outbox = self._outbox
        outbox[: HEADER.size] = _NO_HEADER
        number = self._tell(command)
        magic, status, done, word_count, body_bytes = HEADER.unpack_from(outbox)
        if magic != MAGIC or done != number:
            raise VmCrashedError(
                f"task {self._program.task!r}: a VM ended call {number} without its completion "
                "mark; the VM is destroyed"
            )
        is_result = status in {STATUS_COMPLETE, STATUS_TOO_SMALL}
        if is_result and word_count * WORD_BYTES > self._settings.memory_bytes // _WORDS_SHARE:
            raise FrameError(
                f"task {self._program.task!r}: a result of {word_count} control words is "
                "refused: emit less, or hand over smaller batches"
            )
        # checked numbers are kept here, because a hostile child may change the outbox later
        self._heads = word_count, body_bytes
        return int(status)

    def heads(self) -> tuple[int, int]:  # noqa: D102 - inherited
        return self._heads

    def _tell(self, command: int) -> int:
        # gives an order and waits for the ring back
        self._number += 1
        INBOX.pack_into(self._inbox, 0, command, self._number)
        with suppress(BrokenPipeError):  # the wait below raises the reason
            try:
                os.write(self._wake_fd, RING)
            except BlockingIOError:
                self.kill("it takes no orders")
        # The watchdog sees runs through a number that the guest writes. A hostile guest may
        # write any number. So the child is killed here unless the number ascends within the
        # call's runs.
        limit_s = self._program.limits.wall_time_ms / 1000.0 * 1.25 + 2 * OBEY_TIMEOUT_S
        last = 1 + self.runs + sum(len(runs) for _, _, runs in self._groups)
        seen = -1
        while not self._wait(limit_s):
            number = self.run_number
            if not (seen < number and number & ~REPEATED <= last):
                self.kill(f"no run ended for {limit_s:g} s")
            seen = number
        return self._number

    def _wait(self, limit_s: float) -> bool:
        # returns whether the child rang in time
        for fd, _ in self._poll.poll(limit_s * 1000.0) or ((-1, 0),):
            if fd < 0:
                return False
            if fd == self._done_fd and os.read(fd, len(RING)):
                return True
        raise VmCrashedError(
            f"task {self._program.task!r}: a VM's process ended during call {self._number} "
            f"({self._last_words()}); the VM is destroyed"
        )

    def _last_words(self) -> str:
        if self._killed is not None:
            return self._killed
        words = bytes(self._control.view[TEXT_AT:]).partition(b"\0")[0]
        if words:  # the child may be hostile: keep one line, without terminal control codes
            text = words.decode("utf-8", "replace")[:_WORDS_MAX_CHARACTERS]
            return "".join(character if character.isprintable() else "?" for character in text)
        status = None
        if self._child is not None:
            with suppress(subprocess.TimeoutExpired):
                status = self._child.wait(OBEY_TIMEOUT_S)
        if status is not None and status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return f"exit status {status}"

    def _resize(self, inbox_bytes: int, outbox_bytes: int) -> None:
        for memory, size_bytes in zip(self._memories, (inbox_bytes, outbox_bytes), strict=True):
            if size_bytes > len(memory.view):
                # powers of two, so that growing batches do not share new buffers each time
                memory.grow(min(1 << (size_bytes - 1).bit_length(), self._max_buffer_bytes))
        self._inbox, self._outbox = (memory.view for memory in self._memories)
        mask = CONTROL.unpack_from(self._control.view)[3]
        CONTROL.pack_into(self._control.view, 0, 0, len(self._inbox), len(self._outbox), mask)
        self._tell(LEAVE)

    def _shrink(self) -> None:
        for memory in self._memories:
            if len(memory.view) > KEPT_BUFFER_BYTES:
                memory.give_back(BUFFER_BYTES)

    def _kill_run(self, number: int) -> None:
        if self.run_number == number:
            self.kill(f"a run that was told to stop did not stop in {OBEY_TIMEOUT_S:g} s")
