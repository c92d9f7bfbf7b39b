"""A way to stop Python code in another interpreter, from any thread.

CPython has no public way: an asynchronous exception does not reach an
interpreter that another thread runs. A *pending call* of that interpreter
does: its own thread makes the call at the next loop or call. The pending call
runs a line of text in ``__main__``, which makes ``sys.monitoring`` (PEP 669)
raise at every line until the guest is back in the session. An unused pending
call costs nothing. A loop inside C code never makes pending calls.

The symbols are private: ``StopApi`` looks them up, and ``interpreters`` tries
them before the first VM is made.
"""

import ctypes
from functools import cache
from typing import Final

from walle_stream.errors import VmStartError

_NAMES: Final = ("_PyEval_AddPendingCall", "_PyInterpreterState_LookUpID", "PyRun_SimpleString")


class StopApi:
    """The private functions of this process's CPython."""

    def __init__(self) -> None:
        """Look the functions up.

        Raises:
            VmStartError: A function is missing.
        """
        api = ctypes.pythonapi
        missing = [name for name in _NAMES if not hasattr(api, name)]
        if missing:
            raise VmStartError(
                f"this Python lacks {', '.join(missing)}: scripts that do not return could not be "
                "stopped; use a released CPython 3.13 or 3.14"
            )
        self._find = api["_PyInterpreterState_LookUpID"]
        self._find.argtypes = [ctypes.c_int64]
        self._find.restype = ctypes.c_void_p
        self._add = api["_PyEval_AddPendingCall"]
        self._add.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        self._add.restype = ctypes.c_int
        self._run = ctypes.cast(api["PyRun_SimpleString"], ctypes.c_void_p)
        # the text of a pending call must live until the call was made
        self._texts: dict[bytes, ctypes.Array[ctypes.c_char]] = {}

    def run_soon(self, interpreter_id: int, text: bytes) -> bool:
        """Make an interpreter run a text in ``__main__``, as soon as it runs Python code.

        Args:
            interpreter_id: Id of a live interpreter, which the caller keeps alive.
            text: Python source; texts must be few, because they are kept forever.

        Returns:
            Whether the interpreter's queue, of about 300 calls, accepted the text.
        """
        kept = self._texts.get(text)
        if kept is None:
            kept = self._texts[text] = ctypes.create_string_buffer(text)
        try:
            interpreter = self._find(interpreter_id)
        except Exception:  # noqa: BLE001 - a private class of CPython means an unknown id
            return False
        return (
            bool(interpreter) and self._add(interpreter, self._run, ctypes.addressof(kept), 0) == 0
        )


@cache
def stop_api() -> StopApi:
    """Return the process's ``StopApi``, made at the first call."""
    return StopApi()
