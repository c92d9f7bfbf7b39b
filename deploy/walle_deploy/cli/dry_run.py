"""``walle release dry-run``: the versions that devices would get, and why."""

import argparse
from pathlib import Path
from typing import Any

from walle_deploy.cli.options import add_releases, bounded


def add(commands: Any) -> None:
    """Add the command to the parser of ``walle release``."""
    parser = commands.add_parser(
        "dry-run", help="show the versions that a population would get, and why"
    )
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="YAML of a Release or a Policy (default: what is offered now, of all tasks)",
    )
    parser.add_argument(
        "--population",
        type=Path,
        required=True,
        metavar="FILE",
        help="profiles of devices, a JSON object per line",
    )
    stage = parser.add_mutually_exclusive_group()
    stage.add_argument(
        "--percent", type=bounded(float, 0, 100), metavar="P", help="FILE at a gray step"
    )
    stage.add_argument("--beta", action="store_true", help="FILE at its beta")
    stage.add_argument(
        "--full", action="store_true", help="FILE at its last step, all devices (the default)"
    )
    add_releases(parser)
    parser.add_argument(
        "--alone",
        action="store_true",
        help="FILE without other releases and stable versions; asks no service or store",
    )
    parser.add_argument("--salt", metavar="ID", help="the release's id (default: its name)")
    parser.add_argument(
        "--attributes",
        type=Path,
        metavar="FILE",
        help="ReleaseService YAML, for users' attributes (--service FILE is the same)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--device", metavar="ID", help="each condition, for only this device")
    shown.add_argument("--list", action="store_true", help="a line for each device and task")
    parser.add_argument("--json", action="store_true", help="a JSON object, or one per line")
    parser.set_defaults(run=_run, refuse=parser.error)


def _run(options: argparse.Namespace) -> int:
    if options.service and "://" not in options.service:
        # the meaning of this option before dry runs could ask a service
        options.attributes, options.service = options.attributes or Path(options.service), ""
    file_options = [name for name in ("beta", "full", "alone") if getattr(options, name)]
    file_options += [name for name in ("percent", "salt") if getattr(options, name) is not None]
    if options.file is None and file_options:
        options.refuse(f"--{file_options[0]} needs a FILE: name one, or leave the option out")
    from walle_deploy.cli.dry_running import run_dry_run  # noqa: PLC0415 - only when it runs

    return run_dry_run(options)
