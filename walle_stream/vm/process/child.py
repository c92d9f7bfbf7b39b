"""Entry of a process VM's child: the guest library behind a process boundary.

The host starts a bare Python with one line (``walle_stream.vm.process.start``). The
line executes the modules that a descriptor delivers, and calls ``main``. The child
takes its buffers, imports modules that the script may need, and locks itself down.
Then it binds the script and serves like a VM in the host. It runs until it is killed.

**Control page**, shared with the host::

    u64   number of the current run, 0 for none
    u64   bytes of the inbox        } written by the host
    u64   bytes of the outbox       }
    u64   measures in force, a bit for each of ``MEASURES``
    ...   at ``TEXT_AT``: reason of the child's end, UTF-8, ended by a zero
"""

import marshal
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fcntl import F_DUPFD, fcntl
from importlib import import_module
from mmap import mmap
from struct import Struct
from typing import Any, Final, Never

from walle_stream.vm.guest.layout import RING
from walle_stream.vm.guest.sealing import seal
from walle_stream.vm.guest.session import Session
from walle_stream.vm.guest.stopping import DEEPER
from walle_stream.vm.process.guard import (
    DIES_WITH_HOST,
    MEASURES,
    GuardSettings,
    lock_down,
    tie_to_host,
)

CONTROL_BYTES: Final = 4096
"""Size of the control page."""

CONTROL: Final = Struct("<QQQQ")
"""Fields of the control page: run number, bytes of the inbox, bytes of the outbox, measures."""

TEXT_AT: Final = 64
"""Offset of the text on the control page; the text ends with the page at the latest."""

STOP_SIGNAL: Final = signal.SIGUSR1
"""Asks the child to stop the current run."""

_FAILED: Final = 70
_LATER: Final = ("mmap.__new__",)  # allowed later, because buffers grow over known descriptors
_FIRST_FD: Final = 3  # after the standard streams, which are /dev/null
# Modules that C code, codecs and string.Template would later import from files.
_NEEDED_LATER: Final = (
    *("_pylong", "_strptime", "annotationlib", "copyreg", "re", "time", "typing", "unicodedata"),
    *("warnings", "encodings.ascii", "encodings.latin_1", "encodings.cp1252"),
    *("encodings.iso8859_15", "encodings.utf_8_sig", "encodings.unicode_escape"),
    *("encodings.raw_unicode_escape", "encodings.utf_16", "encodings.utf_16_le"),
    *("encodings.utf_16_be", "encodings.utf_32", "encodings.utf_32_le", "encodings.utf_32_be"),
)


def main(
    settings: Sequence[Any],
    required: Iterable[str],
    fds: Sequence[int],
    packed: bytes,
) -> Never:
    """Become a VM; never returns.

    Args:
        settings: The fields of ``GuardSettings``.
        required: Measures without which no script is bound.
        fds: Descriptors of the control page, the inbox, the outbox, the host's
            ring and the ring back.
        packed: The program, as ``CompiledProgram.packed``.
    """
    control = None
    try:
        guard = GuardSettings(*settings)
        if DIES_WITH_HOST not in guard.off:
            tie_to_host(guard.host_pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # these signals are for the host, which ends the child in order
            signal.signal(number, signal.SIG_IGN)
        fds = _alone(fds)
        control = memoryview(mmap(fds[0], CONTROL_BYTES, trackfd=False))
        session = Session(*_buffers(control, fds), control[:8], _LATER)

        def stop(*_: object) -> None:
            sys.setrecursionlimit(DEEPER)
            session.stop()

        signal.signal(STOP_SIGNAL, stop)
        for name in ("re", *_NEEDED_LATER, *_imports(packed)):
            with suppress(ImportError):
                import_module(name)
                seal()  # before another module uses it
        if "decimal" in sys.modules:
            import_module("_pydecimal")  # formats values that the C code cannot
        measures = lock_down(guard, fds)
        _write_measures(control, measures)
        if set(required) <= set(measures):
            _serve(session, packed, control, fds)
    except BaseException as error:  # noqa: BLE001 - the process ends after any error
        if control is not None:
            text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
            text = text[: CONTROL_BYTES - TEXT_AT]
            control[TEXT_AT : TEXT_AT + len(text)] = text
    os._exit(_FAILED)


def _serve(session: Session, packed: bytes, control: memoryview, fds: Sequence[int]) -> Never:
    wake, done = fds[3:]
    session.bind(packed)
    while True:
        os.write(done, RING)
        session.serve(wake, done, 0)
        session.share(*_buffers(control, fds))  # an order to leave means new buffers


def _imports(packed: bytes) -> list[str]:
    names: list[str] = marshal.loads(packed)[4]  # noqa: S302 - made by the host, with the task's code
    return names


def _write_measures(control: memoryview, measures: Iterable[str]) -> None:
    fields = list(CONTROL.unpack_from(control))
    fields[3] = sum(1 << MEASURES.index(name) for name in measures)
    CONTROL.pack_into(control, 0, *fields)


def _buffers(control: memoryview, fds: Sequence[int]) -> tuple[memoryview, memoryview]:
    _, inbox_bytes, outbox_bytes, _ = CONTROL.unpack_from(control)
    return (
        memoryview(mmap(fds[1], inbox_bytes, trackfd=False)),
        memoryview(mmap(fds[2], outbox_bytes, trackfd=False)),
    )


def _alone(fds: Sequence[int]) -> list[int]:
    # Moves the descriptors to the lowest numbers and closes all others (libffi keeps its
    # own file open), so that the limit of open files leaves no free number.
    end = _FIRST_FD + len(fds)
    parked = [fcntl(fd, F_DUPFD, end) for fd in fds]
    for number, fd in enumerate(parked, _FIRST_FD):
        os.dup2(fd, number)
    os.closerange(end, os.sysconf("SC_OPEN_MAX"))
    return list(range(_FIRST_FD, end))
