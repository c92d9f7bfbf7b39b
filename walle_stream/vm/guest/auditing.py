"""A second wall behind the gate: the interpreter's own audit events (PEP 578).

A script that got past the gate and the restricted builtins still acts through
the interpreter, which announces what reaches outside before it does it. While
a run is at hand, what no script has any business with is refused here. A hook
cannot be removed; it lives as long as its interpreter. Costs 0.2 to 0.5 us an event,
and there is about one per call.
"""

import sys
from os import O_RDWR, O_WRONLY
from typing import Any, Final

_REFUSED: Final = frozenset(
    {
        *("open", "code.__new__", "builtins.input", "builtins.breakpoint"),
        *("_thread.start_new_thread", "_thread.start_joinable_thread", "os", "socket"),
        *("subprocess", "ctypes", "shutil", "tempfile", "glob", "signal", "resource", "mmap"),
        *("fcntl", "pty", "sqlite3", "gc", "pickle", "cpython", "winreg", "msvcrt", "syslog"),
        *("sys.addaudithook", "sys.settrace", "sys.setprofile", "sys._current_frames"),
        *("sys._current_exceptions", "sys.unraisablehook", "sys.excepthook", "sys.remote_exec"),
        *("sys.set_asyncgen_hooks_firstiter", "sys.set_asyncgen_hooks_finalizer"),
    }
)

_WRITES: Final = O_WRONLY | O_RDWR


class Auditor:
    """Refuses events while a run is at hand; one per VM."""

    def __init__(self, pulse: memoryview) -> None:
        """Prepare.

        Args:
            pulse: The number of the run at hand, 0 between runs; a u64.
        """
        self._pulse = pulse
        self._library = tuple(sys.path)
        self.pauses = 0
        """How many parts of this library at once do what a script may not."""

    def begin(self) -> None:
        """Look at every event from now on."""
        pulse, look = self._pulse, self._on_event

        def on_event(event: str, values: tuple[Any, ...]) -> None:
            # a plain function: a bound method would cost every event 1 us, not 0.2 to 0.5
            if pulse[0]:
                look(event, values)

        sys.addaudithook(on_event)

    def _on_event(self, event: str, values: tuple[Any, ...]) -> None:
        # by its name, or by what stands before the first dot
        if (
            (event in _REFUSED or event.partition(".")[0] in _REFUSED)
            and not self.pauses
            and not self._is_import(event, values)
        ):
            raise PermissionError(f"a task's script may not: {event}")

    def _is_import(self, event: str, values: tuple[Any, ...]) -> bool:
        # a codec is imported when a text is first encoded by it: in the middle of a run
        path = values[0] if values else None
        return (
            event in {"open", "os.listdir"}
            and type(path) is str
            and path.startswith(self._library)
            and "site-packages" not in path
            and (event != "open" or not values[2] & _WRITES)
        )


NO_AUDITOR: Final = Auditor(memoryview(bytes(8)).cast("Q"))
"""Where nothing is looked at."""
