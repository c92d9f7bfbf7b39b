"""Output of commands: lines for people, or JSON."""

import argparse
from typing import Any, Final

import msgspec

SHORT: Final = 12


def print_line(line: str) -> None:
    """Print and flush a line for people, without control characters from other people's texts."""
    print(printable(line), flush=True)


def printable(text: str) -> str:
    """Return a text with "?" for characters that move the cursor or are invisible."""
    return "".join(character if character.isprintable() else "?" for character in text)


def print_json(options: argparse.Namespace, facts: Any) -> bool:
    """Print facts as JSON if the options ask for JSON, and return whether they did."""
    if options.json:
        write_json(facts)
    return bool(options.json)


def write_json(value: object) -> None:
    """Print and flush a value as a line of JSON."""
    print(msgspec.json.encode(value).decode(), flush=True)
