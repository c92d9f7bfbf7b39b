"""Start of a process VM's child.

The child is a new Python without packages and without environment. It gets the
guest library and its task's program through an inherited descriptor, and never
opens a file of ours. One thread, which lives as long as the process, starts all
children: with ``dies_with_host`` the kernel kills a child when the *thread* that
started it ends.
"""

import marshal
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import cache
from queue import SimpleQueue
from types import CodeType
from typing import Any, Final

from walle_stream.vm.bundle import (
    GUEST_PACKAGE,
    boot_code,
    compile_guest,
    guest_bundle,
    parse_guest,
)
from walle_stream.vm.process.guard import GuardSettings
from walle_stream.vm.process.memory import SharedMemory

_LOAD: Final = (
    "import marshal,os;g=marshal.loads(os.pread({fd},{size},0));os.close({fd});"
    "exec(g[0],{{'_bundle':g[1]}});n={{'__name__':'walle_child'}};exec(g[2],n);n['start'](g)"
)
_START: Final = """
def start(payload):
    import sys
    from types import ModuleType
    for name, code in payload[3]:
        module = sys.modules[name] = ModuleType(name)
        exec(code, module.__dict__)
    module.main(*payload[4:])
"""
# variables by which a Python in an unusual place finds its own files
_KEPT_ENVIRONMENT: Final = ("PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def start_child(
    settings: GuardSettings, required: Iterable[str], fds: Sequence[int], packed: bytes
) -> subprocess.Popen[bytes]:
    """Start a child; blocks until it runs, not until it is ready.

    Args:
        settings: The child's confinement.
        required: Measures without which the child binds no script.
        fds: Inherited descriptors, in the order of ``child.main``.
        packed: The program, as ``CompiledProgram.packed``.
    """
    arguments: Any = (
        boot_code(),
        guest_bundle(),
        compile(_START, "<walle_guest.start>", "exec", dont_inherit=True),
        _child_modules(),
        tuple(settings),
        sorted(required),
        list(fds),
        packed,
    )
    payload = marshal.dumps(arguments)
    with closing(SharedMemory(len(payload))) as memory:
        memory.view[:] = payload
        load = _LOAD.format(fd=memory.fd, size=len(payload))
        return _spawner.spawn(load, (*fds, memory.fd))


class _Spawner:
    def __init__(self) -> None:
        self._orders: SimpleQueue[tuple[str, tuple[int, ...], Future[subprocess.Popen[bytes]]]]
        self._orders = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def spawn(self, load: str, fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="walle-vm-spawner", daemon=True
                )
                self._thread.start()
        started: Future[subprocess.Popen[bytes]] = Future()
        self._orders.put((load, fds, started))
        return started.result()

    def _run(self) -> None:
        while True:
            load, fds, started = self._orders.get()
            try:
                started.set_result(_spawn(load, fds))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                started.set_exception(error)


def _spawn(load: str, fds: tuple[int, ...]) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    # -I and -E would drop the hash seed, the only variable that they could drop here
    environment["PYTHONHASHSEED"] = "0"
    return subprocess.Popen(  # noqa: S603 - our own Python
        [sys.executable, "-S", "-s", "-P", "-B", "-X", "utf8", "-c", load],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=fds,
        cwd="/",
        env=environment,
        start_new_session=True,  # only the host gets Ctrl-C
    )


_spawner: Final = _Spawner()


@cache
def _child_modules() -> list[tuple[str, CodeType]]:
    names = {f"{GUEST_PACKAGE}.{name}": f"{name}.py" for name in ("guard", "child")}
    return [
        (name, compile_guest(parse_guest("walle_stream.vm.process", file), name))
        for name, file in names.items()
    ]
