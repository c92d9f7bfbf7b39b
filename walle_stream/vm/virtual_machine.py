"""A VM in an isolated interpreter with its own thread, bound to one task's program.

It follows Walle's "one task, one thread, one interpreter". The VM's thread enters
the interpreter once and stays there, because entering costs twice as much as a
whole call without it. A caller writes the inbox, rings, waits for the ring back,
checks the completion mark and reads the outbox. Both buffers are memory of the
host that the guest sees through shared views. They grow when a call needs it, and
shrink afterwards; for either, the guest leaves the interpreter for a moment.
"""

import os
import threading
from contextlib import suppress
from typing import Final

from walle_stream.clock import cpu_clock_of_this_thread
from walle_stream.errors import VmCrashedError, VmStartError
from walle_stream.vm.bundle import boot_code, guest_bundle
from walle_stream.vm.doorbell import Doorbell
from walle_stream.vm.guest.layout import (
    HEADER,
    INBOX,
    LEAVE,
    LONGEST_PAUSE,
    MAGIC,
    NUMBER,
    RING,
)
from walle_stream.vm.guest.stopping import STOP_FOR_MEMORY, STOP_RUN
from walle_stream.vm.interpreters import Interpreter
from walle_stream.vm.machine import BUFFER_BYTES, DESTROY_TIMEOUT_S, Machine
from walle_stream.vm.program import CompiledProgram
from walle_stream.vm.services import HostServices
from walle_stream.vm.spinning import spin_count

RESULT_MAX_BYTES: Final = 1024 * 1024 * 1024
"""Largest batch and largest result of one call; the guest enforces the task's limits per run."""

_START: Final = compile(
    "from walle_guest.session import Session\n_session = Session(_inbox, _outbox, _pulse)\n"
    "del _inbox, _outbox, _pulse",
    "<walle>",
    "exec",
)
_BIND: Final = compile("_session.bind(_program)\ndel _program", "<walle>", "exec")
_SHARE: Final = compile("_session.share(_inbox, _outbox)\ndel _inbox, _outbox", "<walle>", "exec")
_SERVE: Final = compile("_session.serve(_wake, _done, _spins)", "<walle>", "exec")
# objects that the guest froze would never be freed: 7 MB per VM
_STOP: Final = compile("import gc\ngc.unfreeze()", "<walle>", "exec")
_HEADER_BYTES: Final = HEADER.size
_NO_PROGRAM: Final = CompiledProgram("", "", b"")
_MAGIC: Final = int.from_bytes(MAGIC, "little")
_NOT_SAID: Final = "without a word"


class VirtualMachine(Machine):
    """A VM in its own interpreter, for one caller at a time, in any thread."""

    shares_memory = True

    def __init__(
        self, program: CompiledProgram | None = None, services: HostServices | None = None
    ) -> None:
        """Create the VM, which takes 15-40 ms; without a program it is warm, for ``bind``.

        Raises:
            VmStartError: The interpreter could not be made or did not start.
            ScriptError: The script's body raised.
        """
        super().__init__(program or _NO_PROGRAM, services, RESULT_MAX_BYTES)
        self._is_bound = threading.Event()
        self._taken = 0
        self._take_buffers(BUFFER_BYTES, BUFFER_BYTES)
        self._spins = range(spin_count())
        self._pause = self._paused = 0
        self._shares = 0
        self._heard = 0
        self._pulse = memoryview(bytearray(8))
        self._at_hand = self._pulse.cast("Q")
        self._wake, self._done = Doorbell(), Doorbell()
        self._interpreter: Interpreter | None = None
        self._failure: str | None = None
        self._start_error: BaseException | None = None
        self._thread = threading.Thread(target=self._live, name="walle-vm", daemon=True)
        self._begin()
        if program is not None:
            self.bind(program)

    def bind(self, program: CompiledProgram) -> None:
        """Bind a warm VM to a task for the rest of its life, which takes about 2 ms.

        Raises:
            VmStartError: The VM did not start.
            ScriptError: The script's body raised.
        """
        self._program = program
        self._thread.name = f"walle-vm-{program.task}"
        self._is_bound.set()
        try:
            self._await_start()
        except BaseException:
            self.destroy()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the VM's thread is in its interpreter, which cannot be ended then."""
        return self._thread.is_alive()

    @property
    def run_number(self) -> int:
        """Number of the current run, ascending over the VM's life; 0 when idle."""
        return int(self._at_hand[0])

    # The caller's side

    def order(self, command: int) -> int:  # noqa: D102 - inherited
        number, heads, orders = self._number + 1, self._heads, self._orders
        self._number = number
        heads[NUMBER] = 0
        orders[0] = command
        orders[NUMBER] = number
        os.write(self._wake.write_fd, RING)
        if self._paused:
            self._paused -= 1
        else:
            for _ in self._spins:
                if heads[NUMBER] == number:
                    self._pause = 0
                    break
            else:
                # spinning that did not pay off is tried less and less often
                self._pause = self._paused = min(2 * self._pause + 1, LONGEST_PAUSE)
        while heads[NUMBER] != number:
            self._listen()
        return int(heads[0] - _MAGIC >> 32)

    def heads(self) -> tuple[int, int]:  # noqa: D102 - inherited
        heads = self._heads
        return heads[2], heads[3]

    def _resize(self, inbox_bytes: int, outbox_bytes: int) -> None:
        # powers of two, so that growing batches do not share new buffers each time
        orders, shares = self._orders, self._shares
        self._take_buffers(_round_up(inbox_bytes), _round_up(outbox_bytes))
        self._number = number = self._number + 1
        self._orders[NUMBER] = number  # the guest has seen this number, so it is not an order
        orders[0] = LEAVE
        orders[NUMBER] = number
        os.write(self._wake.write_fd, RING)
        while self._shares == shares:
            self._listen()

    def _shrink(self) -> None:
        self._resize(BUFFER_BYTES, BUFFER_BYTES)

    def _listen(self) -> None:
        # Every order rings once. A ring may belong to a reply that spinning saw first; once
        # all rings were heard, no further reply can come.
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

    def _start(self) -> None:
        self._thread.start()
        self._await_start()

    def _has_started(self, limit_s: float) -> bool:
        if not self._done.wait(limit_s):
            return False
        if self._start_error is not None:
            raise self._start_error
        return True

    def _tell_to_stop(self, *, for_memory: bool) -> bool:
        interpreter = self._interpreter
        if interpreter is None:
            return False
        if for_memory:
            self.is_worn = True
            return interpreter.run_soon(STOP_FOR_MEMORY)
        return interpreter.run_soon(STOP_RUN)

    def _hurry(self) -> None:
        if self.run_number:
            self.stop_run()

    def _end(self) -> None:
        self._is_bound.set()
        if self._thread.is_alive():
            self._orders[0] = LEAVE
            self._orders[NUMBER] = self._number + 1
            self._wake.ring()
            self._thread.join(DESTROY_TIMEOUT_S)
        if not self._thread.is_alive():
            self._wake.close()
            self._done.close()

    # The VM's own thread

    def _live(self) -> None:
        self.cpu_ms = cpu_clock_of_this_thread()
        try:
            interpreter = Interpreter()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._start_error = error
            self._done.ring()
            return
        self._interpreter = interpreter
        try:
            self._warm_up(interpreter)
            taken = self._taken  # read before a caller takes larger buffers
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
                _spins=len(self._spins),
            )
            failure = interpreter.execute(_START)
        if failure is not None:
            raise VmStartError(f"a VM did not start ({failure}): report it")

    def _load(self, interpreter: Interpreter) -> None:
        program = self._program
        interpreter.share(_program=program.packed)
        failure = interpreter.execute(_BIND)
        if failure is not None or bytes(self._outbox[: len(MAGIC)]) != MAGIC:
            raise VmStartError(
                f"a VM for task {program.task!r} did not start "
                f"({failure or _NOT_SAID}): report it with the script"
            )
        self._check_bound()

    def _serve(self, interpreter: Interpreter, taken: int) -> None:
        # ``taken`` identifies the guest's buffers by number; a reference would keep them alive
        try:
            while True:
                failure = interpreter.execute(_SERVE)
                if self._is_ending:
                    return
                if failure is None and taken == self._taken:
                    failure = _NOT_SAID  # the guest left without an order
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


def _round_up(size_bytes: int) -> int:
    return 1 << (max(size_bytes, BUFFER_BYTES) - 1).bit_length()
