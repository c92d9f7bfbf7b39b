"""Stops Python code that runs in another interpreter, from any thread.

CPython has no public way: an asynchronous exception is not delivered to an
interpreter that another thread runs. What works is a *pending call* of that
interpreter, made by its own thread at the next loop or call: it runs a line of
text in ``__main__``, and that line lets ``sys.monitoring`` (PEP 669) raise from
then on, at every line, until the guest has come back to the session.
Costs nothing until used. A loop inside C code never looks for pending calls.

The symbols are private: ``StopApi`` looks them up and ``interpreters`` tries
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
        """Look them up.

        Raises:
            VmStartError: One is missing.
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
        # what a pending call points to must live until it was made
        self._texts: dict[bytes, ctypes.Array[ctypes.c_char]] = {}

    def run_soon(self, interpreter_id: int, text: bytes) -> bool:
        """Let an interpreter run a text in ``__main__``, as soon as it runs Python code.

        Args:
            interpreter_id: Of a living interpreter; the caller keeps it alive.
            text: Python source; one of a few, because they are kept for ever.

        Returns:
            Whether it was accepted; its queue holds some 300.
        """
        kept = self._texts.get(text)
        if kept is None:
            kept = self._texts[text] = ctypes.create_string_buffer(text)
        try:
            interpreter = self._find(interpreter_id)
        except Exception:  # noqa: BLE001 - a private class of CPython's: there is none of that id
            return False
        return (
            bool(interpreter) and self._add(interpreter, self._run, ctypes.addressof(kept), 0) == 0
        )


@cache
def stop_api() -> StopApi:
    """Return the process's ``StopApi``, made at the first call."""
    return StopApi()
