"""``walle cloud FILE``: the cloud side of a pipeline whose tunnel is Kafka.

The command imports its modules when it runs, not when its options are parsed.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from walle_stream.errors import SpecFileError
from walle_stream.wire.bearer import TOKEN_VARIABLE

_PORTS: Final = range(1, 65_536)


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    parser = commands.add_parser("cloud", help="run the cloud side of a pipeline over Kafka")
    parser.add_argument("file", type=Path, metavar="FILE", help="pipeline YAML with a Kafka tunnel")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="override a value of the YAML"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="D",
        help="folder of this worker's tables (default: walle-data/NAME-cloud)",
    )
    parser.add_argument("--web-host", default="127.0.0.1", metavar="HOST", help="for look-ups")
    parser.add_argument("--web-port", type=_port, default=6066, metavar="N")
    parser.add_argument(
        "--advertise",
        metavar="HOST[:PORT]",
        help="address of the look-ups for other workers (default: --web-host, --web-port)",
    )
    parser.add_argument(
        "--keep",
        type=_positive,
        default=50,
        metavar="N",
        help="latest features per device and task",
    )
    parser.add_argument(
        "--patience",
        type=_positive,
        default=60,
        metavar="S",
        help="end with exit code 14 after S seconds of lag without progress",
    )
    _add_sources_of_state(parser)
    parser.add_argument(
        "--reports",
        type=_service,
        metavar="URL",
        help="send the devices' reports (spec.reports) to this release service",
    )
    parser.add_argument("--baseline", action="store_true", help=argparse.SUPPRESS)
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


def _add_sources_of_state(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--snapshots",
        metavar="URL",
        help="a folder that all workers reach, s3://, gs:// or az://: the table of a partition "
        "that moves is restored from there",
    )
    parser.add_argument(
        "--snapshot-every", type=_positive, default=60, metavar="S", help="interval of snapshots"
    )
    parser.add_argument(
        "--on-missing",
        choices=("fail", "earliest"),
        default="fail",
        help="if retention deleted unmerged records: refuse to start, or continue after them",
    )


def run(options: argparse.Namespace) -> int:
    """Run a worker until SIGTERM or SIGINT.

    Raises:
        SpecFileError: An extra is not installed, or the YAML is wrong.
        WalleError: See ``worker.run_cloud``.
    """
    if options.baseline:
        raise SpecFileError(
            "the cloud-only baseline is part of the benchmarks: run python bench/cloud_baseline.py "
            "FILE in the repository"
        )
    from walle_connectors.kafka.cloud.worker import run_cloud  # noqa: PLC0415 - heavy
    from walle_connectors.kafka.pipeline import load_kafka  # noqa: PLC0415 - beside it
    from walle_stream.cloud.place import own_data_dir  # noqa: PLC0415 - RocksDB is beside it

    loaded = load_kafka(options.file, options.set)
    options.logging("text", options.log_level, loaded.masked_values)
    path = options.data_dir or Path("walle-data") / f"{loaded.pipeline.metadata.name}-cloud"
    with own_data_dir(path) as data_dir:
        return int(run_cloud(loaded, data_dir, options, sys.stdout))


def _service(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise argparse.ArgumentTypeError(f"{text!r} is not http://HOST[:PORT] or https://...")
    return text


def _port(text: str) -> int:
    value = _positive(text)
    if value not in _PORTS:
        raise argparse.ArgumentTypeError(f"{value} is not a port number")
    return value


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not 1 or more")
    return value
