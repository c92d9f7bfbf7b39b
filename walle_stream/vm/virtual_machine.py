"""One VM: an isolated interpreter bound to one task's program.

A call is: write the inbox, enter, look for the completion mark, read the
outbox. Both buffers are memory of the host that the guest sees through shared
views; they grow when a call needs it and shrink again afterwards. Whoever calls
must hold the VM alone, and destroys it after any error.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from types import CodeType
from typing import Final

from walle_stream.errors import FrameError, VmCrashedError, VmStartError
from walle_stream.vm.bundle import boot_code, guest_bundle
from walle_stream.vm.frames import decode_header, decode_results
from walle_stream.vm.guest.layout import HEADER, NUMBER, STATUS_COMPLETE, STATUS_TOO_SMALL
from walle_stream.vm.interpreters import Interpreter
from walle_stream.vm.program import CompiledProgram, script_error
from walle_stream.vm.results import DeviceGroup, GroupResult

BUFFER_BYTES: Final = 256 * 1024
"""Size of the inbox and of the outbox of a VM at rest."""

KEPT_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""A buffer that grew beyond this is dropped after the call."""

RESULT_MAX_BYTES: Final = 1024 * 1024 * 1024
"""Largest result of one call; the guest holds each run to 16 MiB."""

_START: Final = compile(
    "from walle_guest.session import Session\n_session = Session(_inbox, _outbox)\n"
    "_session.bind(_program)\ndel _program, _inbox, _outbox",
    "<walle>",
    "exec",
)
_SHARE: Final = compile("_session.share(_inbox, _outbox)\ndel _inbox, _outbox", "<walle>", "exec")
_CALL: Final = compile("_session.call()", "<walle>", "exec")
_PENDING: Final = compile("_session.write_pending()", "<walle>", "exec")
# what the guest froze would never be freed: 7 MB per VM
_STOP: Final = compile("import gc\ngc.unfreeze()", "<walle>", "exec")
_BIND_GROUPS: Final[Sequence[DeviceGroup]] = (("", {}, ((0, 0, ()),)),)
_NO_HEADER: Final = bytes(HEADER.size)


class VirtualMachine:
    """A VM. One thread at a time."""

    def __init__(self, program: CompiledProgram) -> None:
        """Create it and load the program; 15-40 ms.

        Args:
            program: The task it is bound to.

        Raises:
            VmStartError: The interpreter could not be made or did not start.
            ScriptError: The script's body raised.
        """
        self._program = program
        self._number = 0
        self._is_destroyed = False
        self._inbox = memoryview(bytearray(BUFFER_BYTES))
        self._outbox = memoryview(bytearray(BUFFER_BYTES))
        self._interpreter = Interpreter()
        try:
            self._start()
        except BaseException:
            self.destroy()
            raise

    def call(self, groups: Sequence[DeviceGroup], packed: bytes) -> list[GroupResult]:
        """Run a batch; enters the VM in this thread.

        Args:
            groups: The batch.
            packed: The same, by ``encode_groups``.

        Returns:
            One result per group, in order.

        Raises:
            VmCrashedError: The call ended without its completion mark.
            FrameError: The result is malformed or too large.
        """
        self._number = number = self._number + 1
        size_bytes = NUMBER.size + len(packed)
        if size_bytes > len(self._inbox):
            self._resize(size_bytes, len(self._outbox))
        NUMBER.pack_into(self._inbox, 0, number)
        self._inbox[NUMBER.size : size_bytes] = packed
        if self._enter(_CALL, number) == STATUS_TOO_SMALL:
            self._fetch(number)
        results = decode_results(groups, self._outbox)
        if max(len(self._inbox), len(self._outbox)) > KEPT_BUFFER_BYTES:
            self._resize(BUFFER_BYTES, BUFFER_BYTES)
        return results

    def destroy(self) -> None:
        """End the VM; may be called twice."""
        if not self._is_destroyed:
            self._is_destroyed = True
            with suppress(VmCrashedError):
                self._interpreter.execute(_STOP)
            self._interpreter.destroy()

    def _start(self) -> None:
        interpreter, program = self._interpreter, self._program
        interpreter.share(_bundle=guest_bundle())
        failure = interpreter.execute(boot_code())
        if failure is None:
            interpreter.share(_program=program.packed, _inbox=self._inbox, _outbox=self._outbox)
            failure = interpreter.execute(_START)
        header = decode_header(self._outbox)
        if failure is not None or header is None:
            raise VmStartError(
                f"a VM for task {program.task!r} did not start "
                f"({failure or 'without a word'}): report it with the script"
            )
        (group,) = decode_results(_BIND_GROUPS, self._outbox)
        (run,) = group.runs
        if not run.ok:
            place = re.match(rf"{re.escape(program.file)}:(\d+): ", run.message)
            text = run.message[place.end() if place else 0 :]
            raise script_error(
                program, int(place[1]) if place else 0, f"raises when loaded: {text}"
            )

    def _enter(self, code: CodeType, number: int) -> int:
        self._outbox[: HEADER.size] = _NO_HEADER
        failure = self._interpreter.execute(code)
        header = decode_header(self._outbox)
        if failure is not None or header is None or header.number != number:
            raise VmCrashedError(
                f"task {self._program.task!r}: a VM ended call {number} without its completion "
                f"mark ({failure or 'without a word'}); the VM is destroyed"
            )
        if header.status not in {STATUS_COMPLETE, STATUS_TOO_SMALL}:
            raise FrameError(
                f"task {self._program.task!r}: a result frame has status {header.status}"
            )
        return header.status

    def _fetch(self, number: int) -> None:
        header = decode_header(self._outbox)
        needed = header.size_bytes if header else 0
        if not len(self._outbox) < needed <= RESULT_MAX_BYTES:
            raise FrameError(
                f"task {self._program.task!r}: a result of {needed} bytes is refused, at most "
                f"{RESULT_MAX_BYTES} are allowed: emit less, or hand over smaller batches"
            )
        self._resize(len(self._inbox), needed)
        if self._enter(_PENDING, number) != STATUS_COMPLETE:
            raise FrameError(f"task {self._program.task!r}: a result frame changed its size")

    def _resize(self, inbox_bytes: int, outbox_bytes: int) -> None:
        # powers of two: a growing stream of batches does not re-share each time
        self._inbox = memoryview(bytearray(_round_up(inbox_bytes)))
        self._outbox = memoryview(bytearray(_round_up(outbox_bytes)))
        self._interpreter.share(_inbox=self._inbox, _outbox=self._outbox)
        failure = self._interpreter.execute(_SHARE)
        if failure is not None:
            raise VmCrashedError(
                f"task {self._program.task!r}: a VM did not take its buffers ({failure}); the VM "
                "is destroyed"
            )


def _round_up(size_bytes: int) -> int:
    return 1 << (max(size_bytes, BUFFER_BYTES) - 1).bit_length()
