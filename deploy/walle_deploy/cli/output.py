"""How commands print: lines for people, or JSON."""

import argparse
from typing import Any, Final

import msgspec

SHORT: Final = 12


def print_line(line: str) -> None:
    """Print a line for people, at once: what others named or wrote moves no cursor."""
    print(printable(line), flush=True)


def printable(text: str) -> str:
    """Return a text with a mark in place of what moves a cursor, or is not seen."""
    return "".join(character if character.isprintable() else "?" for character in text)


def print_json(options: argparse.Namespace, facts: Any) -> bool:
    """Print facts as JSON if that is asked for; return whether it was."""
    if options.json:
        write_json(facts)
    return bool(options.json)


def write_json(value: object) -> None:
    """Print a value as a line of JSON, at once."""
    print(msgspec.json.encode(value).decode(), flush=True)
