"""The option ``--store`` of commands that read or write releases; its parser stays light."""

import argparse
import os
from typing import Final

from walle_stream.errors import ServiceUnreachableError

_VARIABLE: Final = "WALLE_RELEASES"


def add_store(parser: argparse.ArgumentParser, also: str = "") -> None:
    """Add ``--store``, which the environment variable ``WALLE_RELEASES`` stands in for.

    Args:
        parser: Of a command.
        also: What the command's help says behind it.
    """
    parser.add_argument(
        "--store",
        default=os.environ.get(_VARIABLE, ""),
        metavar="STORE",
        help=f"SQLite file, or postgresql://... (default: ${_VARIABLE}){also}",
    )


def need_store(options: argparse.Namespace, also: str = "") -> str:
    """Return the store that was named.

    Args:
        options: With ``store``.
        also: What else could be done, for the error.

    Raises:
        ServiceUnreachableError: None is named.
    """
    if not options.store:
        raise ServiceUnreachableError(
            f"no release store: give --store, or set {_VARIABLE}{also and ', '}{also}"
        )
    return str(options.store)
