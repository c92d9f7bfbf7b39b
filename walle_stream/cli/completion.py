"""``walle completion``: a shell's completion of commands and options."""

import argparse
import os
import sys

SHELLS = ("bash", "zsh", "fish")


def completion(options: argparse.Namespace) -> int:
    """Print the lines for a shell's start-up file."""
    # imported here, because no other command needs it
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415

    print(shellcode(["walle"], shell=options.shell))
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell's completion request and end the process; do nothing without a request."""
    if "_ARGCOMPLETE" in os.environ and sys.stdout is not None:
        from argcomplete import autocomplete  # noqa: PLC0415 - same

        autocomplete(parser)
