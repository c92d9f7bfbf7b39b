"""``walle cloud FILE``: the cloud side of a pipeline whose tunnel is Kafka.

Faust and what it needs are imported when the command runs, not when it is parsed.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from walle_stream.errors import SpecFileError
from walle_stream.errors.extras import how_to_install
from walle_stream.wire.bearer import TOKEN_VARIABLE

_PORTS: Final = range(1, 65_536)


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    parser = commands.add_parser("cloud", help="the cloud side of a pipeline: features over Kafka")
    parser.add_argument("file", type=Path, metavar="FILE", help="pipeline YAML, tunnel: kafka")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="override a value of the YAML"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="D",
        help="tables of this worker (default: walle-data/NAME-cloud)",
    )
    parser.add_argument("--web-host", default="127.0.0.1", metavar="HOST", help="look-ups listen")
    parser.add_argument("--web-port", type=_port, default=6066, metavar="N")
    parser.add_argument(
        "--advertise",
        metavar="HOST[:PORT]",
        help="where other workers find the look-ups (default: --web-host, --web-port)",
    )
    parser.add_argument(
        "--keep", type=_positive, default=50, metavar="N", help="latest features per device, task"
    )
    parser.add_argument(
        "--patience",
        type=_positive,
        default=60,
        metavar="S",
        help="end with exit code 14 after so many seconds of lag without progress",
    )
    reading = parser.add_mutually_exclusive_group()
    reading.add_argument(
        "--reports",
        type=_service,
        metavar="URL",
        help="send what devices report (spec.reports) to this release service",
    )
    reading.add_argument(
        "--baseline",
        action="store_true",
        help="instead: make the features here, from raw events (spec.source: kafka)",
    )
    parser.add_argument(
        "--reports-token",
        type=Path,
        metavar="FILE",
        help="with --reports: token of this relay, read again when it changes (default: "
        f"${TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="warning"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run a worker until SIGTERM or SIGINT.

    Raises:
        SpecFileError: Faust is not installed, or the YAML is wrong.
        TunnelError: The broker, its topics, or the app.
    """
    if find_spec("faust") is None:
        raise SpecFileError(
            f"walle cloud needs Faust: install the extra, {how_to_install('cloud')}"
        )
    from walle_connectors.faust.assembly import run_cloud  # noqa: PLC0415 - see the module

    return run_cloud(options, sys.stdout)


def _service(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise argparse.ArgumentTypeError(f"{text!r} is not http://HOST[:PORT] or https://...")
    return text


def _port(text: str) -> int:
    value = _positive(text)
    if value not in _PORTS:
        raise argparse.ArgumentTypeError(f"{value} is no port")
    return value


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value
