"""A second barrier behind the gate: the interpreter's own audit events (PEP 578).

A script that got past the gate and the restricted builtins still acts through the
interpreter, which announces outside effects before they happen. From ``begin`` on,
events that no script needs are refused: to the script, and to all other code of the
interpreter, forever. So a script finds nothing to switch off: no flag for a current
run, and no exception that it could use.

The script cannot reach the hook either. The interpreter does not expose its hooks,
and ``gc``, which could find them, is refused. A refusal's traceback leads to the
hook's frame, which has nothing to write to: the hook compares with constants and
defaults only, and a default is reachable through the function alone. The hook uses
no global name, no builtin and no closure.

An event costs 0.2 to 0.5 us, and a call has about one.
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

# modules that make interpreters without this hook, or access raw memory
_NOT_IMPORTED: Final = frozenset(
    {
        *("_interpreters", "_interpchannels", "_interpqueues", "_ctypes", "_testcapi"),
        *("_testinternalcapi", "_testlimitedcapi"),
    }
)

TEXT_WINDOW: Final = [0]
"""Number of checked functions that make code or functions at the moment; ``sealing`` counts.
It is the only writable object here. It allows text to become code and nothing else, and a
script that could write to it would have made code already."""


def begin(allowed: Iterable[str] = ()) -> None:
    """Check every event from now on; ``allowed`` events, which the host needs later, pass."""
    paths = tuple(f"{path}/" for path in sys.path if path)
    constants = (_REFUSED, frozenset(allowed), _NOT_IMPORTED, paths, TEXT_WINDOW, STOP_TEXTS)
    # a copy to which no other reference exists
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
    # by its name, or by the part before the first dot
    if (event not in refused and event.partition(".")[0] not in refused) or event in allowed:
        return
    if event == "import":
        if values[0] not in not_imported:
            return
    elif event in {"open", "os.listdir", "compile"}:
        # some modules, such as codecs, are imported at their first use, during a run
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
