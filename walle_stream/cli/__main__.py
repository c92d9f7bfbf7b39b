"""Entry of the ``walle`` command: parse, dispatch, turn errors into one line.

Exit codes (also in the README): 0 done or stopped by a signal with everything
committed, 1 another error of ours, 2 wrong usage, 3 a definition or script,
4 the source, 5 a virtual machine, 6 the data directory, 7 it is locked, 8 the
disk is full, 9 actors or tunnel, 10 a script did not return when the run was
asked to stop, 130 ended by a second signal.
"""

import os
import sys
from collections.abc import Sequence

EXIT_UNEXPECTED = 70
"""A bug of ours (``EX_SOFTWARE``): the traceback is printed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: Arguments without the program's name; None takes the process's.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    _fix_hash_seed(arguments)
    from walle_stream.cli.parser import build_parser  # noqa: PLC0415 - after a possible re-exec
    from walle_stream.errors import WalleError  # noqa: PLC0415 - same

    options = build_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except WalleError as error:
        print(f"walle: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # the reader of our output went away (`walle features list | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("walle: interrupted", file=sys.stderr)
        return 130


def _fix_hash_seed(arguments: list[str]) -> None:
    # a script that iterates over a set of text must give the same bytes in
    # every run (architecture, determinism); the salt is per process
    if arguments[:1] == ["run"] and os.environ.get("PYTHONHASHSEED") != "0":
        environ = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "walle_stream.cli", *arguments]
        os.execve(sys.executable, command, environ)  # noqa: S606 - our own command again


if __name__ == "__main__":
    raise SystemExit(main())
