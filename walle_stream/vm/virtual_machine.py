"""One VM: an isolated interpreter, its own thread, bound to one task's program.

Walle's "one task, one thread, one interpreter". The VM's thread enters the
interpreter once and stays in it (entering costs twice what a whole call does
this way); a caller writes the inbox, rings, waits for the ring back, looks for
the completion mark and reads the outbox. Both buffers are memory of the host
that the guest sees through shared views; they grow when a call needs it and
shrink again afterwards: for that the guest leaves for a moment.

Whoever calls must hold the VM alone, and destroys it after any error.
"""

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from walle_stream.errors import FrameError, StopTimeoutError, VmCrashedError, VmStartError
from walle_stream.vm.binding import check_bound
from walle_stream.vm.bundle import boot_code, guest_bundle
from walle_stream.vm.doorbell import Doorbell
from walle_stream.vm.frames import decode_behind_header, decode_header
from walle_stream.vm.guest.layout import (
    CALL,
    HEADER,
    INBOX,
    LEAVE,
    LONGEST_PAUSE,
    MAGIC,
    NUMBER,
    PENDING,
    RING,
    STATUS_ASKS,
    STATUS_COMPLETE,
    STATUS_TOO_SMALL,
    WORD_BYTES,
)
from walle_stream.vm.guest.stopping import STOP_FOR_MEMORY, STOP_RUN
from walle_stream.vm.interpreters import Interpreter
from walle_stream.vm.looking import look_count
from walle_stream.vm.machine import Machine
from walle_stream.vm.program import CompiledProgram
from walle_stream.vm.results import DeviceGroup, GroupResult
from walle_stream.vm.services import HostServices

BUFFER_BYTES: Final = 256 * 1024
"""Size of the inbox and of the outbox of a VM at rest."""

KEPT_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""A buffer that grew beyond this is dropped after the call."""

RESULT_MAX_BYTES: Final = 1024 * 1024 * 1024
"""Largest result of one call; the guest holds each run to its task's limits."""

START_TIMEOUT_S: Final = 10.0
"""Longest time that loading a script may take."""

STOP_TIMEOUT_S: Final = 2.0
"""Longest wait for a script that was told to stop."""

DESTROY_TIMEOUT_S: Final = 10.0
"""Longest wait for a VM's thread at its end."""

_START: Final = compile(
    "from walle_guest.session import Session\n_session = Session(_inbox, _outbox, _pulse)\n"
    "del _inbox, _outbox, _pulse",
    "<walle>",
    "exec",
)
_BIND: Final = compile("_session.bind(_program)\ndel _program", "<walle>", "exec")
_SHARE: Final = compile("_session.share(_inbox, _outbox)\ndel _inbox, _outbox", "<walle>", "exec")
_SERVE: Final = compile("_session.serve(_wake, _done, _spins)", "<walle>", "exec")
# what the guest froze would never be freed: 7 MB per VM
_STOP: Final = compile("import gc\ngc.unfreeze()", "<walle>", "exec")
_HEADER_BYTES: Final = HEADER.size
_NO_PROGRAM: Final = CompiledProgram("", "", b"", 0, 0)
_MAGIC: Final = int.from_bytes(MAGIC, "little")
_NOT_SAID: Final = "without a word"


class VirtualMachine(Machine):
    """A VM in an interpreter of its own. One caller at a time, in any thread."""

    def __init__(
        self, program: CompiledProgram | None = None, services: HostServices | None = None
    ) -> None:
        """Create it, and load the program if it is known already; 15-40 ms.

        Args:
            program: The task it is bound to; None makes a warm VM for ``bind``.
            services: What the host does for runs that ask.

        Raises:
            VmStartError: The interpreter could not be made or did not start.
            ScriptError: The script's body raised.
        """
        super().__init__(program or _NO_PROGRAM)
        self._services = services or HostServices()
        self._is_bound = threading.Event()
        self._number = self._taken = 0
        self._take_buffers(BUFFER_BYTES, BUFFER_BYTES)
        self._looks = range(look_count())
        self._pause = self._paused = 0
        self._shares = 0
        self._heard = 0
        self._pulse = memoryview(bytearray(8))
        self._at_hand = self._pulse.cast("Q")
        self._wake, self._done = Doorbell(), Doorbell()
        self._interpreter: Interpreter | None = None
        self._lock = threading.Lock()
        self._is_ending = False
        self._failure: str | None = None
        self._start_error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name="walle-vm", daemon=True)
        self._thread.start()
        self._await_start()
        _machines.add(self)
        if program is not None:
            self.bind(program)

    def bind(self, program: CompiledProgram) -> None:
        """Bind a warm VM to a task, for the rest of its life; some 2 ms.

        Args:
            program: The task.

        Raises:
            VmStartError: It did not start.
            ScriptError: The script's body raised.
        """
        self._program = program
        self._thread.name = f"walle-vm-{program.task}"
        self._is_bound.set()
        self._await_start()

    def call(self, groups: Sequence[DeviceGroup], packed: bytes) -> list[GroupResult]:
        """Run a batch; blocks until the guest is done.

        Args:
            groups: The batch.
            packed: The same, by ``encode_groups``.

        Returns:
            One result per group, in order.

        Raises:
            VmCrashedError: The call ended without its completion mark.
            FrameError: The result is malformed or too large.
        """
        size_bytes = INBOX.size + len(packed)
        if size_bytes > len(self._inbox):
            self._resize(size_bytes, len(self._outbox))
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
        heads = self._heads
        results = decode_behind_header(groups, self._outbox, heads[2], heads[3])
        self._count(groups)
        if len(self._inbox) > KEPT_BUFFER_BYTES or len(self._outbox) > KEPT_BUFFER_BYTES:
            self._resize(BUFFER_BYTES, BUFFER_BYTES)
        return results

    def destroy(self) -> None:
        """End the VM and wait for its thread; may be called twice.

        A guest that does not come back keeps its thread and its memory.
        """
        with self._lock:
            if self._is_ending:
                return
            self._is_ending = True
        _machines.discard(self)
        self._is_bound.set()
        if self._thread.is_alive():
            self._orders[0] = LEAVE
            self._orders[NUMBER] = self._number + 1
            self._wake.ring()
            self._thread.join(DESTROY_TIMEOUT_S)
        if self._thread.is_alive():
            _left.append(self)
        else:
            self._wake.close()
            self._done.close()

    @property
    def is_alive(self) -> bool:
        """Whether its thread is in its interpreter, which nobody can end meanwhile."""
        return self._thread.is_alive()

    @property
    def run_number(self) -> int:
        """Number of the run at hand, ascending for the VM's life; 0 when idle."""
        return int(self._at_hand[0])

    def stop_run(self, *, for_memory: bool = False) -> bool:
        """Stop the run at hand: it fails, the call goes on; any thread.

        Args:
            for_memory: Why: the process has too much, or the run takes too long.

        Returns:
            Whether the guest was asked; it obeys at its next line of Python.
        """
        with self._lock:
            interpreter = self._interpreter
            if interpreter is None or self._is_ending:
                return False
            self.was_stopped = True
            if for_memory:
                self.is_worn = True
                return interpreter.run_soon(STOP_FOR_MEMORY)
            return interpreter.run_soon(STOP_RUN)

    # The caller's side

    def _await_start(self) -> None:
        limit_s = START_TIMEOUT_S
        while not self._done.wait(limit_s):
            if limit_s != START_TIMEOUT_S or not self.stop_run():
                self._start_error = VmStartError(
                    f"a VM for task {self._program.task!r} did not start in {START_TIMEOUT_S:g} s: "
                    "look for what takes so long when the script is loaded"
                )
                break
            limit_s = STOP_TIMEOUT_S
        if self._start_error is not None:
            self.destroy()
            raise self._start_error

    # For the services that answer a run

    def order(self, order: int) -> int:
        """Give an order, return the status of what comes back; within a call alone.

        Args:
            order: See ``guest.layout``.

        Raises:
            VmCrashedError: Nothing came back.
        """
        number, heads, orders = self._number + 1, self._heads, self._orders
        self._number = number
        heads[NUMBER] = 0
        orders[0] = order
        orders[NUMBER] = number
        os.write(self._wake.write_fd, RING)
        if self._paused:
            self._paused -= 1
        else:
            for _ in self._looks:
                if heads[NUMBER] == number:
                    self._pause = 0
                    break
            else:
                # what did not pay is done ever more seldom
                self._pause = self._paused = min(2 * self._pause + 1, LONGEST_PAUSE)
        while heads[NUMBER] != number:
            self._listen()
        return int(heads[0] - _MAGIC >> 32)

    def heads(self) -> tuple[int, int]:
        """Return the outbox's third and fourth number."""
        return self._heads[2], self._heads[3]

    def buffers(self) -> tuple[memoryview, memoryview]:
        """Return inbox and outbox."""
        return self._inbox, self._outbox

    def _grow(self) -> None:
        needed = HEADER.size + WORD_BYTES * self._heads[2] + self._heads[3]
        if not len(self._outbox) < needed <= RESULT_MAX_BYTES:
            raise FrameError(
                f"task {self._program.task!r}: a result of {needed} bytes is refused, at most "
                f"{RESULT_MAX_BYTES} are allowed: emit less, or hand over smaller batches"
            )
        self._resize(len(self._inbox), needed)

    def _resize(self, inbox_bytes: int, outbox_bytes: int) -> None:
        # powers of two: a growing stream of batches does not re-share each time
        orders, shares = self._orders, self._shares
        self._take_buffers(_round_up(inbox_bytes), _round_up(outbox_bytes))
        self._number = number = self._number + 1
        self._orders[NUMBER] = number  # the guest has seen it: no order
        orders[0] = LEAVE
        orders[NUMBER] = number
        os.write(self._wake.write_fd, RING)
        while self._shares == shares:
            self._listen()

    def _listen(self) -> None:
        # Every order is rung for once. A ring may be for an answer that was seen before
        # it was heard; when all were heard, nothing more will come.
        if self._failure is not None or self._heard == self._number:
            raise VmCrashedError(
                f"task {self._program.task!r}: a VM ended call {self._number} without its "
                f"completion mark ({self._failure or _NOT_SAID}); the VM is destroyed"
            )
        self._heard += int.from_bytes(os.read(self._done.read_fd, 8), "little")

    def _take_buffers(self, inbox_bytes: int, outbox_bytes: int) -> None:
        self._taken += 1
        self._inbox = memoryview(bytearray(inbox_bytes))
        self._outbox = memoryview(bytearray(outbox_bytes))
        self._orders = self._inbox[: INBOX.size].cast("Q")
        self._heads = self._outbox[:_HEADER_BYTES].cast("Q")

    # The VM's own thread

    def _live(self) -> None:
        try:
            interpreter = Interpreter()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._start_error = error
            self._done.ring()
            return
        self._interpreter = interpreter
        try:
            self._warm_up(interpreter)
            taken = self._taken  # before a caller takes larger ones
            self._done.ring()
            self._is_bound.wait()
            if not self._is_ending:
                self._load(interpreter)
                self._done.ring()
                self._serve(interpreter, taken)
        except BaseException as error:  # noqa: BLE001 - same
            self._start_error = error
        finally:
            with suppress(VmCrashedError):
                interpreter.execute(_STOP)
            with self._lock:  # a pending call needs a living interpreter
                self._interpreter = None
            interpreter.destroy()
            self._failure = self._failure or "it was destroyed"
            self._done.ring()

    def _warm_up(self, interpreter: Interpreter) -> None:
        interpreter.share(_bundle=guest_bundle())
        failure = interpreter.execute(boot_code())
        if failure is None:
            interpreter.share(
                _inbox=self._inbox,
                _outbox=self._outbox,
                _pulse=self._pulse,
                _wake=self._wake.read_fd,
                _done=self._done.write_fd,
                _spins=len(self._looks),
            )
            failure = interpreter.execute(_START)
        if failure is not None:
            raise VmStartError(f"a VM did not start ({failure}): report it")

    def _load(self, interpreter: Interpreter) -> None:
        program = self._program
        interpreter.share(_program=program.packed)
        failure = interpreter.execute(_BIND)
        header = decode_header(self._outbox)
        if failure is not None or header is None:
            raise VmStartError(
                f"a VM for task {program.task!r} did not start "
                f"({failure or _NOT_SAID}): report it with the script"
            )
        check_bound(program, self._outbox)

    def _serve(self, interpreter: Interpreter, taken: int) -> None:
        # which buffers the guest has: a number, for a reference would keep them
        try:
            while True:
                failure = interpreter.execute(_SERVE)
                if self._is_ending:
                    return
                if failure is None and taken == self._taken:
                    failure = _NOT_SAID  # it left without having been told to
                if failure is None:
                    taken = self._taken
                    interpreter.share(_inbox=self._inbox, _outbox=self._outbox)
                    failure = interpreter.execute(_SHARE)
                if failure is not None:
                    self._failure = failure
                    return
                self._shares += 1
                self._done.ring()
        except VmCrashedError as error:
            self._failure = str(error)


# a process that ends while VMs live may abort: their threads end before it does
_machines: Final[weakref.WeakSet[VirtualMachine]] = weakref.WeakSet()
_left: Final[list[VirtualMachine]] = []  # destroyed, but they did not come back


def _destroy_all() -> None:
    machines = list(_machines)
    for machine in machines:
        if machine.run_number:
            machine.stop_run()  # nobody is left who waits for it
    for machine in machines:
        machine.destroy()
    if any(machine.is_alive for machine in _left):
        # Python would wait for it without end, or die of a fault, when it ends the
        # interpreter: this is the last chance to end in order.
        sys.stderr.write("walle: a script does not end: the process ends without it\n")
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(StopTimeoutError.exit_code)


atexit.register(_destroy_all)


def _round_up(size_bytes: int) -> int:
    return 1 << (max(size_bytes, BUFFER_BYTES) - 1).bit_length()
