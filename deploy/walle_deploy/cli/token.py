"""``walle token``: keys, and signed tokens of devices, relays and operators."""

import argparse
from pathlib import Path
from typing import Any, Final

from walle_deploy.cli.options import duration, need_extra
from walle_stream.errors import SpecFileError

_SIGNING: Final = "signing.json"
_PUBLIC: Final = "keys.json"


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    token = commands.add_parser("token", help="make tokens of devices, relays and operators")
    verbs = token.add_subparsers(dest="verb", required=True, metavar="VERB")
    key = verbs.add_parser("key", help="make a key; each call makes a new one, for rotation")
    key.add_argument(
        "folder",
        type=Path,
        metavar="FOLDER",
        help=f"folder for {_SIGNING}, which is secret, and {_PUBLIC}, which the service reads",
    )
    key.add_argument(
        "--issuer", required=True, metavar="NAME", help="spec.authentication.issuer of the service"
    )
    key.set_defaults(run=run_key)
    sign = verbs.add_parser("sign", help="print a token")
    sign.add_argument("key", type=Path, metavar="FILE", help=f"{_SIGNING} of walle token key")
    who = sign.add_mutually_exclusive_group(required=True)
    who.add_argument("--device", metavar="ID", help="for a device's checks and reports")
    who.add_argument("--relay", metavar="NAME", help="for reports of other devices")
    who.add_argument("--operator", metavar="NAME", help="for releases, with --role")
    sign.add_argument(
        "--role",
        choices=("viewer", "author", "approver"),
        default="viewer",
        help="role of the operator (viewer)",
    )
    sign.add_argument(
        "--valid",
        type=duration(1_000),
        default="1h",
        metavar="TIME",
        help="validity from now on (1h)",
    )
    sign.add_argument(
        "--audience", default="", metavar="NAME", help="the service's audience, if it is unusual"
    )
    sign.set_defaults(run=run_sign)


def run_key(options: argparse.Namespace) -> int:
    """Make a key.

    Raises:
        SpecFileError: The key cannot be written.
    """
    need_extra("jwt")
    from walle_deploy.identity.signing import SigningKey  # noqa: PLC0415 - an extra

    folder: Path = options.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        SigningKey.create(options.issuer).write(folder / _SIGNING, folder / _PUBLIC)
    except OSError as error:
        raise SpecFileError(
            f"{folder}: cannot be written: {error.strerror}", str(folder)
        ) from error
    print(f"{folder / _SIGNING} signs tokens, {folder / _PUBLIC} is for the service")
    return 0


def run_sign(options: argparse.Namespace) -> int:
    """Print a token."""
    need_extra("jwt")
    from walle_deploy.identity.proven import proven_as  # noqa: PLC0415 - an extra
    from walle_deploy.identity.signing import SigningKey  # noqa: PLC0415 - the same

    key = SigningKey.read(options.key)
    if options.operator is not None:
        role, name = options.role, proven_as("anybody", options.operator).name
    elif options.device is not None:
        role, name = "device", proven_as("device", options.device).name
    else:
        role, name = "relay", proven_as("relay", options.relay).name
    print(key.sign(role, name, options.valid // 1_000, options.audience))
    return 0
