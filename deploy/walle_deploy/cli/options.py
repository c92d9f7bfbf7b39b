"""Options that several commands share, and checks before a command begins."""

import argparse
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from walle_deploy.model.addresses import is_url
from walle_stream.errors import DeployError, ServiceUnreachableError, SpecFileError, WalleError
from walle_stream.errors.extras import how_to_install

STORE_VARIABLE: Final = "WALLE_RELEASES"
SERVICE_VARIABLE: Final = "WALLE_SERVICE"


def add_store(parser: argparse.ArgumentParser, also: str = "") -> None:
    """Add ``--store``, whose default is the environment variable ``WALLE_RELEASES``."""
    parser.add_argument(
        "--store",
        default=os.environ.get(STORE_VARIABLE, ""),
        metavar="STORE",
        help=f"SQLite file, or postgresql://... (default: ${STORE_VARIABLE}){also}",
    )


def add_releases(parser: argparse.ArgumentParser, also: str = "") -> None:
    """Add the options for a service or a store of releases, and for the proof of identity."""
    add_store(parser, also)
    parser.add_argument(
        "--service",
        default="",
        metavar="URL",
        help=f"the release service, in place of a store (default: ${SERVICE_VARIABLE})",
    )
    proof = parser.add_mutually_exclusive_group()
    proof.add_argument(
        "--token", type=Path, metavar="FILE", help="proof of your identity (default: $WALLE_TOKEN)"
    )
    proof.add_argument(
        "--operator-key",
        type=Path,
        metavar="FILE",
        help="signing.json of walle token key, if there is no issuer: signs as an approver",
    )


def need_store(options: argparse.Namespace, also: str = "") -> str:
    """Return the named store.

    Raises:
        ServiceUnreachableError: No store is named.
    """
    if not options.store:
        raise ServiceUnreachableError(
            f"no release store: give --store, or set {STORE_VARIABLE}{also and ', '}{also}"
        )
    return str(options.store)


def need_url(option: str, text: str, *, has_path: bool) -> None:
    """Refuse a text that is not the address of a server.

    Raises:
        SpecFileError: The text is not such an address.
    """
    if is_url(text, has_path=has_path):
        return
    wanted = "https://HOST[:PORT]/ and maybe a path" if has_path else "http://HOST:PORT, no path"
    raise SpecFileError(
        f"{option} {text[:200]!r}: is not the address of a server: expected {wanted}"
    )


def bounded[N: (int, float)](
    kind: type[N], least: N, most: N, what: str = "a number"
) -> Callable[[str], N]:
    """Return the ``type`` of an option with bounds; ``int`` accepts only digits."""

    def parse(text: str) -> N:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most or (kind is int and not text.isdecimal()):
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least} to {most}")
        return value

    return parse


def duration(least_ms: int, most_ms: int = 366 * 86_400_000) -> Callable[[str], int]:
    """Return the ``type`` of an option with a duration such as ``10s``, in milliseconds."""

    def parse(text: str) -> int:
        from walle_stream.spec.scalars import parse_duration_ms  # noqa: PLC0415 - pydantic is heavy

        try:
            value_ms = parse_duration_ms(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        if not least_ms <= value_ms <= most_ms:
            raise argparse.ArgumentTypeError(f"{text} is not from {least_ms} to {most_ms} ms")
        return value_ms

    return parse


def need_extra(*modules: str, kind: type[WalleError] = DeployError) -> None:
    """Refuse to go on without modules of the extra ``deploy``.

    Raises:
        WalleError: A module is not installed; the error is of type ``kind``.
    """
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise kind(f"{name} is not installed: {how_to_install('deploy')}")
