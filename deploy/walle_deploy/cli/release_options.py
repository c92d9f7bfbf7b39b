"""What the sub-commands about releases have in common: who works on them, output."""

import argparse
import getpass
import sys

import msgspec

from walle_deploy.cli.task_output import print_line


def who(options: argparse.Namespace) -> str:
    """Return who does something, as far as this process knows."""
    by = getattr(options, "by", None)
    if by:
        return str(by)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a process without a name
        return "unknown"


def say_json(value: object) -> None:
    """Write a value as a line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def say(line: str) -> None:
    """Write a line for people, at once."""
    print_line(line)
    sys.stdout.flush()
