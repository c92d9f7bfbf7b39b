"""What the sub-commands about releases have in common: the store, and who works on it."""

import argparse
import getpass
from collections.abc import Iterator
from contextlib import contextmanager

from walle_deploy.cli.store_option import need_store
from walle_deploy.store.opening import open_store
from walle_deploy.store.port import ReleaseStore


@contextmanager
def given_store(options: argparse.Namespace, *, make: bool = False) -> Iterator[ReleaseStore]:
    """Open the store that ``--store`` or the environment names, until left.

    Args:
        options: With ``store``.
        make: Make it where it is missing.

    Raises:
        ServiceUnreachableError: None is named, or it does not answer.
    """
    store = open_store(need_store(options), make=make)
    try:
        yield store
    finally:
        store.close()


def who(options: argparse.Namespace) -> str:
    """Return who does something, for the audit log.

    Args:
        options: With ``by``.
    """
    if options.by:
        return str(options.by)
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a process without a name
        return "unknown"
