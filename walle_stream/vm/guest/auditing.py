"""A second wall behind the gate: the interpreter's own audit events (PEP 578).

A script that got past the gate and the restricted builtins still acts through
the interpreter, which announces what reaches outside before it does it. From
``begin`` on, what no script has any business with is refused: to the script,
and to everything else in the interpreter, for ever. So there is nothing to
switch off: no number that says whether a run is at hand, no exception that a
script could make its own.

The hook itself is out of reach, too. The interpreter does not hand its hooks
out, and what could find them (``gc``) is refused. A refusal's traceback leads to
the hook's frame, which has nothing to write to: what the hook compares with are
constants and defaults, and a default is reached through the function alone.
It uses no global name, no builtin and no closure.

Costs 0.2 to 0.5 us an event, and there is about one per call.
"""

import sys
from collections.abc import Iterable
from types import FunctionType
from typing import Any, Final

from walle_stream.vm.guest.stopping import STOP_TEXTS

_REFUSED: Final = frozenset(
    {
        *("open", "code.__new__", "function.__new__", "builtins.input", "builtins.breakpoint"),
        "compile",
        "import",
        *("_thread.start_new_thread", "_thread.start_joinable_thread", "os", "socket"),
        *("subprocess", "ctypes", "shutil", "tempfile", "glob", "signal", "resource", "mmap"),
        *("fcntl", "pty", "sqlite3", "gc", "pickle", "cpython", "winreg", "msvcrt", "syslog"),
        *("sys.addaudithook", "sys.settrace", "sys.setprofile", "sys._current_frames"),
        *("sys._current_exceptions", "sys.unraisablehook", "sys.excepthook", "sys.remote_exec"),
        *("sys.set_asyncgen_hooks_firstiter", "sys.set_asyncgen_hooks_finalizer"),
    }
)

# other interpreters have no hook; memory as it is
_NOT_IMPORTED: Final = frozenset(
    {
        *("_interpreters", "_interpchannels", "_interpqueues", "_ctypes", "_testcapi"),
        *("_testinternalcapi", "_testlimitedcapi"),
    }
)

TEXT_WINDOW: Final = [0]
"""How many checked functions make code or functions at the moment: ``sealing`` counts.
The one thing here that can be written to. It lets text become code, which a script
that can write to it has done already, and nothing else."""


def begin(allowed: Iterable[str] = ()) -> None:
    """Look at every event from now on; refuse none that the host itself needs later."""
    paths = tuple(f"{path}/" for path in sys.path if path)
    constants = (_REFUSED, frozenset(allowed), _NOT_IMPORTED, paths, TEXT_WINDOW, STOP_TEXTS)
    # a copy that nobody else holds
    hook = FunctionType(_look.__code__, {"__builtins__": {}}, "hook", (*constants, *_TYPES))
    sys.addaudithook(hook)


_TYPES: Final = (str, type, PermissionError)


def _look(  # noqa: PLR0913, PLR0917 - no global name is read: see the module
    event: str,
    values: tuple[Any, ...],
    refused: frozenset[str] = frozenset(),
    allowed: frozenset[str] = frozenset(),
    not_imported: frozenset[str] = frozenset(),
    library: tuple[str, ...] = (),
    window: list[int] = TEXT_WINDOW,
    stop_texts: tuple[bytes, ...] = (),
    text: type[str] = str,
    kind: type[type] = type,
    error: type[Exception] = PermissionError,
) -> None:
    # by its name, or by what stands before the first dot
    if (event not in refused and event.partition(".")[0] not in refused) or event in allowed:
        return
    if event == "import":
        if values[0] not in not_imported:
            return
    elif event in {"open", "os.listdir", "compile"}:
        # a module is imported when it is first needed, a codec for one: in the middle of a run
        path = values[1] if event == "compile" else values[0]
        if (
            kind(path) is text
            and path.startswith(library)
            and ".." not in path
            and "site-packages" not in path
            and (event != "open" or (path.endswith((".py", ".pyc")) and not values[2] & 3))
        ):
            return
        if event == "compile" and (window[0] or values[0] in stop_texts):
            return
    elif event == "function.__new__" and window[0]:
        return
    raise error(f"a task's script may not: {event}")
