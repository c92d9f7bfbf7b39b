"""How the verbs of ``walle task`` print: lines for people, or one JSON object."""

import argparse
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
