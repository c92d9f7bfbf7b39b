"""A VM with code of the tests inside: booted as ``VirtualMachine`` boots one, then looked into."""

import ast
import json
from pathlib import Path
from typing import Any, Self

from walle_stream.vm.bundle import boot_code, guest_bundle
from walle_stream.vm.guest.rules import ALLOWED_MODULES
from walle_stream.vm.interpreters import Interpreter
from walle_stream.vm.program import TaskProgram, compile_program

INSIDE = Path(__file__).parent / "inside"
ANSWER_BYTES = 64 * 1024 * 1024
EVERYTHING = "".join(f"import {name}\n" for name in sorted(ALLOWED_MODULES))
_START = """
from walle_guest.session import Session
_session = Session(_inbox, _outbox, _pulse)
_session.bind(_program)
del _inbox, _outbox, _pulse, _program
"""
_ASK = """
import json
try:
    _data = json.dumps({call}).encode()
except BaseException:
    import traceback
    raise AssertionError(traceback.format_exc()) from None
_answer[:8] = len(_data).to_bytes(8, "little")
_answer[8:8 + len(_data)] = _data
"""


class OpenedVm:
    """A VM bound to a script that imports everything; ``with`` destroys it."""

    def __init__(self, *files: str, source: str = EVERYTHING) -> None:
        program = compile_program(
            TaskProgram("t", "v", f"{source}\ndef run(ctx, page): pass\n", "t.py")
        )
        self._interpreter = Interpreter()
        self._answer = memoryview(bytearray(ANSWER_BYTES))
        try:
            self._share(_bundle=guest_bundle())
            self._run(boot_code())
            buffers = {name: memoryview(bytearray(1024 * 1024)) for name in ("_inbox", "_outbox")}
            self.pulse = memoryview(bytearray(8))
            self._share(**buffers, _pulse=self.pulse, _program=program.packed)
            # files of the tests first: afterwards no text becomes code there
            for name in files:
                path = INSIDE / f"{name}.py"
                tree = ast.parse(path.read_text(encoding="utf-8"))
                self._run(compile(tree, f"<inside {name}>", "exec", dont_inherit=True))
            self._run(compile(_START, "<harness>", "exec"))
            self._share(_answer=self._answer)
        except BaseException:
            self._interpreter.destroy()
            raise

    def ask(self, call: str, **given: bytes | int) -> Any:
        """Evaluate an expression in the VM's ``__main__``; return its value through JSON."""
        self._share(**given)
        self._answer[:8] = bytes(8)
        self._run(compile(_ASK.format(call=call), "<harness>", "exec"))
        size = int.from_bytes(self._answer[:8], "little")
        return json.loads(bytes(self._answer[8 : 8 + size]))

    def run(self, text: str) -> None:
        """Execute text in the VM's ``__main__``."""
        self._run(compile(text, "<test>", "exec"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._interpreter.destroy()

    def _share(self, **values: Any) -> None:
        if values:
            self._interpreter.share(**values)

    def _run(self, code: Any) -> None:
        failure = self._interpreter.execute(code)
        if failure is not None:
            raise AssertionError(failure)
