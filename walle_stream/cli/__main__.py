"""Entry of the ``walle`` command: parse, dispatch, turn errors into one line.

Exit codes (also in docs/commands.md): 0 done, or stopped by a signal with everything
committed, 1 any other error of ours, 2 wrong usage, 3 a definition, script or
package, 4 the source, 5 a virtual machine, 6 the data directory, 7 it is locked, 8 the
disk is full, 9 actors or tunnel, 10 a script or a broker did not answer at the run's
stop, 11 Ray or its cluster, 12 no broker or object store answers, 13 a topic of
a broker, 14 the cloud side stalled, 15 the tensor engine or its model, 16 the deployment
platform, 17 a signature does not hold, 18 another user was first, 19 a service does
not answer, 22 a task of the run did nothing, 23 a required isolation measure is
missing, 130 ended by a second signal.
"""

import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

EXIT_FULL = 8
"""The disk is full, even if only the command's output does not fit."""

_LASTING: Final = frozenset({"run", "device", "cloud", "fleet"})
"""Commands that run until a signal and install their own handlers later."""

_GC_THRESHOLD: Final = 50_000
"""Imports leave few cycles, and collecting them takes 5 % of a command's start."""

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of the process, and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    code = _run(arguments, is_process=argv is None)
    if argv is None:
        gc.freeze()  # spares the interpreter's end another pass over all objects of a run
    if argv is None and any(thread.daemon for thread in threading.enumerate()):
        # a daemon thread may still be closing a host's database. At the interpreter's end
        # Python 3.13 would end that thread inside native code, and so abort the process
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


def _run(arguments: list[str], *, is_process: bool) -> int:
    try:
        if is_process:
            gc.set_threshold(_GC_THRESHOLD, 20, 100)
            _handle_signals(*arguments[:1])
            if arguments[:1] in (["run"], ["device"], ["demo"]):
                _fix_hash_seed(arguments)
        return _dispatch(arguments)
    except BrokenPipeError:
        # the reader of our output is gone (`walle features list | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, UnicodeError) as error:
        _say(f"walle: {error}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # buffered output must not fail again
        return EXIT_FULL if getattr(error, "errno", None) in _FULL else 1
    except KeyboardInterrupt:
        _say("walle: interrupted")
        return 130


def _dispatch(arguments: list[str]) -> int:
    from walle_stream.cli.completion import complete  # noqa: PLC0415 - after a possible re-exec
    from walle_stream.cli.parser import build_parser  # noqa: PLC0415 - same
    from walle_stream.errors import WalleError  # noqa: PLC0415 - same

    parser = build_parser(*arguments[:1])
    complete(parser)
    options = parser.parse_args(arguments)
    try:
        code = int(options.run(options))
        if sys.stdout is not None:
            sys.stdout.flush()  # shows a full disk here, not at the interpreter's end
    except WalleError as error:
        _say(f"walle: {error}")
        return error.exit_code
    return code


def _say(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def _handle_signals(command: str = "") -> None:
    if command in _LASTING:
        _end_quietly_on_signals()
    else:
        # like Ctrl-C, so that unfinished work is undone on the way out
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _end_quietly_on_signals() -> None:
    # until the run has its own handlers: nothing is open or read yet
    def on_signal(number: int, _frame: FrameType | None) -> None:
        _say(f"walle: stopped by {signal.Signals(number).name} before anything was read")
        os._exit(0)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))


def _fix_hash_seed(arguments: list[str]) -> None:
    # a script that iterates over a set of strings must give the same bytes in every run, but
    # Python salts the hashes of each process
    if os.environ.get("PYTHONHASHSEED") != "0":
        environ = {**os.environ, "PYTHONHASHSEED": "0"}
        # -P: never import modules from the current directory
        command = [sys.executable, "-P", "-m", "walle_stream.cli", *arguments]
        # a signal during the exec waits for the handlers of the new process
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        os.execve(sys.executable, command, environ)  # noqa: S606 - our own command again


if __name__ == "__main__":
    raise SystemExit(main())
