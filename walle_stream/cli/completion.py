"""``walle completion``: what a shell needs to complete commands and options."""

import argparse
import os
import sys

SHELLS = ("bash", "zsh", "fish")


def completion(options: argparse.Namespace) -> int:
    """Print the lines for a shell's start-up file."""
    # imported where used: nothing else needs it
    from argcomplete.shell_integration import shellcode  # noqa: PLC0415

    print(shellcode(["walle"], shell=options.shell))
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell that asks what could come next, and end; does nothing for anybody else."""
    if "_ARGCOMPLETE" in os.environ and sys.stdout is not None:
        from argcomplete import autocomplete  # noqa: PLC0415 - same

        autocomplete(parser)
