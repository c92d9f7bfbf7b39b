"""How commands print: lines for people, or JSON."""

import argparse
import getpass
import sys
from typing import Any, Final

import msgspec

SHORT: Final = 12
"""Digits of a commit that people see."""


def print_line(line: str) -> None:
    """Print a line for people: what others named or wrote moves no cursor."""
    text = "".join(character if character.isprintable() else "?" for character in line)
    sys.stdout.write(f"{text}\n")


def print_json(options: argparse.Namespace, facts: Any) -> bool:
    """Print facts as JSON if that is asked for; return whether it was."""
    if options.json:
        sys.stdout.write(f"{msgspec.json.encode(facts).decode()}\n")
    return bool(options.json)


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
