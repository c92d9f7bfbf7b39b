"""Isolated interpreters, each with its own GIL, on every supported Python.

Python 3.13 has them in the private module ``_interpreters``, 3.14 and later in
``concurrent.interpreters``. No other module of walle_stream uses either (PEP 684,
PEP 734). ``ensure_supported`` tries every operation that VMs need once per process,
before the first VM is made.

Measured behaviour decides the rest:

- Python 3.13 aborts when two VMs that imported ``datetime``, ``zoneinfo`` or
  ``sqlite3`` are destroyed, unless the host imported them first. This module does.
- A process that ends with live VMs may abort, so VMs are destroyed at exit.
- A child of ``os.fork`` crashes at once if VMs are alive. So fork is refused with a
  message, by PEP 578's audit events, which precede the fork. ``subprocess`` works,
  except with ``preexec_fn``, which raises no audit event.
- A call without an exception may still have failed, because a MemoryError can be
  lost. Callers check a completion mark that the guest wrote.
"""

import atexit
import sys
import threading
from contextlib import suppress
from importlib import import_module
from types import CodeType
from typing import Any, Final

from walle_stream.errors import VmCrashedError, VmForkError, VmStartError
from walle_stream.vm.runaway import stop_api

HOST_IMPORTS: Final = ("datetime", "sqlite3", "zoneinfo")
"""Modules that the host imports before the first VM on Python 3.13."""

_FORKS: Final = frozenset({"os.fork", "os.forkpty"})
_PUBLIC_API: Final = (3, 14)
_PROBE: Final = compile("_buffer[0] = _data[0] + 1", "<walle probe>", "exec")
_FAULT: Final = compile("raise LookupError('probe')", "<walle probe>", "exec")
_ASKED: Final = compile(
    "for _ in range(10_000_000):\n    if '_is_asked' in globals(): break\nelse: raise TimeoutError",
    "<walle probe>",
    "exec",
)
# On 3.13 a memoryview is shareable only after the guest imported this module. Its functions make
# interpreters, which the guest's audit hooks would not see, so they are removed.
_PREPARE: Final = compile(
    "import _interpreters\nvars(_interpreters).clear()\ndel _interpreters", "<walle>", "exec"
)


class _Api313:
    def __init__(self) -> None:
        for name in HOST_IMPORTS:
            with suppress(ImportError):
                import_module(name)
        self._module = import_module("_interpreters")

    def create(self) -> Any:
        return self._module.create(self._module.new_config("isolated", gil="own"))

    def share(self, handle: Any, values: dict[str, Any]) -> None:
        self._module.set___main___attrs(handle, values)

    def execute(self, handle: Any, code: CodeType) -> str | None:
        failure = self._module.exec(handle, code)
        return None if failure is None else str(failure.formatted)

    def destroy(self, handle: Any) -> None:
        self._module.destroy(handle)

    def id_of(self, handle: Any) -> int:
        return int(handle)


class _Api314:
    def __init__(self) -> None:
        self._module = import_module("concurrent.interpreters")

    def create(self) -> Any:
        return self._module.create()

    def share(self, handle: Any, values: dict[str, Any]) -> None:
        handle.prepare_main(values)

    def execute(self, handle: Any, code: CodeType) -> str | None:
        try:
            handle.exec(code)
        except self._module.ExecutionFailed as error:
            return str(error.excinfo.formatted)
        return None

    def destroy(self, handle: Any) -> None:
        handle.close()

    def id_of(self, handle: Any) -> int:
        return int(handle.id)


type _Api = _Api313 | _Api314


class _Registry:
    # one per process: the API of this Python, and the live interpreters

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.live: set[Interpreter] = set()
        self.loaded: _Api | None = None
        self.is_tested = False

    def api(self) -> _Api:
        with self.lock:
            if self.loaded is None:
                try:
                    self.loaded = _Api314() if sys.version_info >= _PUBLIC_API else _Api313()
                except ImportError as error:
                    raise VmStartError(
                        f"this Python ({sys.version.split()[0]}, {sys.implementation.name}) has no "
                        f"isolated interpreters ({error}): use CPython 3.13 or newer"
                    ) from error
                sys.addaudithook(_refuse_fork)
            return self.loaded

    def destroy_all(self) -> None:
        for interpreter in list(self.live):
            # an interpreter that still runs in a daemon thread cannot be destroyed
            with suppress(Exception):
                interpreter.destroy()


_registry: Final = _Registry()
# registered early, so that it runs last: normally a VM's own thread ends its interpreter
atexit.register(_registry.destroy_all)


def _refuse_fork(event: str, _: object) -> None:
    # a plain function: a bound method would cost every event 1 us, not 0.2 to 0.5
    if event in _FORKS and _registry.live:
        raise VmForkError(
            f"this process has {len(_registry.live)} live VMs, and a forked child would crash at "
            "once: use subprocess, or multiprocessing's 'spawn', or fork before the VMs"
        )


class Interpreter:
    """An isolated interpreter, for use by one thread at a time."""

    __slots__ = ("_api", "_handle", "_is_alive")

    def __init__(self) -> None:
        """Create the interpreter, which takes 6-18 ms.

        Raises:
            VmStartError: This Python has no isolated interpreters, or cannot
                make another one.
        """
        self._api = _registry.api()
        try:
            self._handle = self._api.create()
        except Exception as error:  # every failure of a private API means the same
            raise VmStartError(
                f"an isolated interpreter could not be made ({error!r}): use CPython 3.13 or "
                "newer, with enough memory"
            ) from error
        self._is_alive = True
        with _registry.lock:
            _registry.live.add(self)
        self.execute(_PREPARE)

    def share(self, **values: bytes | int | memoryview) -> None:
        """Set names in the interpreter's ``__main__``.

        Bytes and integers are copied. A memoryview shares its memory until the guest has dropped
        every reference to it.
        """
        self._api.share(self._handle, values)

    def execute(self, code: CodeType) -> str | None:
        """Run code in ``__main__``; enters the interpreter in this thread.

        Args:
            code: Made by ``compile``, which takes 12-14 us a call (source text: 30).

        Returns:
            The exception as text; None if there was none or it was lost. Only
            a mark that the code itself wrote proves that it ran to its end.

        Raises:
            VmCrashedError: The interpreter could not be entered.
        """
        try:
            return self._api.execute(self._handle, code)
        except Exception as error:  # every failure of a private API means the same
            raise VmCrashedError(
                f"an interpreter could not be entered ({error!r}): use another one"
            ) from error

    def run_soon(self, text: bytes) -> bool:
        """Make it run a fixed line (see ``runaway``) in ``__main__`` amid its other code.

        Returns:
            Whether the interpreter accepted the line.
        """
        return stop_api().run_soon(self._api.id_of(self._handle), text)

    def destroy(self) -> None:
        """End the interpreter, which must not be running; may be called twice."""
        if not self._is_alive:
            return
        # set first, because a second thread that ends it, at exit, would hang or crash
        self._is_alive = False
        try:
            self._api.destroy(self._handle)
        except BaseException:
            self._is_alive = True
            raise
        with _registry.lock:
            _registry.live.discard(self)


def live_count() -> int:
    """Return the number of live interpreters that this module made."""
    return len(_registry.live)


def ensure_supported() -> None:
    """Try every operation that VMs need, once per process.

    Raises:
        VmStartError: An operation does not work; the message names it.
    """
    if _registry.is_tested:
        return
    buffer = bytearray(1)
    interpreter = Interpreter()
    try:
        _expect(interpreter.execute(_PREPARE) is None, "running code")
        interpreter.share(_buffer=memoryview(buffer), _data=b"\x29")
        _expect(interpreter.execute(_PROBE) is None, "sharing memory")
        _expect(buffer[0] == 0x2A, "writing to shared memory")  # noqa: PLR2004 - one more than sent
        _expect("probe" in (interpreter.execute(_FAULT) or ""), "reporting an exception")
        _expect(interpreter.run_soon(b"_is_asked = True"), "taking a pending call")
        _expect(interpreter.execute(_ASKED) is None, "making a pending call")
        interpreter.destroy()
    except VmStartError:
        raise
    except Exception as error:  # every failure of a private API means the same
        raise VmStartError(
            f"isolated interpreters do not work on Python {sys.version.split()[0]} ({error!r}): "
            "use a released CPython 3.13 or newer"
        ) from error
    finally:
        with suppress(Exception):
            interpreter.destroy()
    _registry.is_tested = True


def _expect(is_true: bool, what: str) -> None:
    if not is_true:
        raise VmStartError(
            f"isolated interpreters of Python {sys.version.split()[0]} fail at {what}: use a "
            "released CPython 3.13 or newer"
        )
