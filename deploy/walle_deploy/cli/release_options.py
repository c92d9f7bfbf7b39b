"""What the sub-commands about releases have in common: the store, who works on it, output."""

import argparse
import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from walle_deploy.cli.store_option import need_store
from walle_deploy.cli.task_output import print_line
from walle_deploy.store.opening import open_store
from walle_deploy.store.port import ReleaseStore


@contextmanager
def given_store(
    options: argparse.Namespace, *, make: bool = False, also: str = ""
) -> Iterator[ReleaseStore]:
    """Open the store that ``--store`` or the environment names, until left.

    Args:
        options: With ``store``.
        make: Make it where it is missing.
        also: What else could be done where none is named.

    Raises:
        ServiceUnreachableError: None is named, or it does not answer.
    """
    store = open_store(need_store(options, also), make=make)
    try:
        yield store
    finally:
        store.close()


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
