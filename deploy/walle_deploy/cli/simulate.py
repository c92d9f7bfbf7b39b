"""``simulate``: try a package on kinds of devices; a sub-command of ``walle release``."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from walle_stream.errors import DeployError, PackageError, SpecFileError
from walle_stream.errors.extras import how_to_install

if TYPE_CHECKING:
    from walle_deploy.simulation.report import KindReport, SimulationReport, VersionRun

_COLUMNS: Final = ("kind", "result", "runs", "failed", "p50 ms", "p99 ms", "drift")


def add(commands: Any) -> None:
    """Add the command to a parser."""
    parser = commands.add_parser(
        "simulate", help="try a task package on kinds of devices, with recorded events"
    )
    parser.add_argument(
        "package", type=Path, metavar="PACKAGE", help="package of the version to try"
    )
    parser.add_argument(
        "--kinds", type=Path, required=True, metavar="FILE", help="YAML of the kind DeviceKinds"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--events", type=Path, metavar="FILE", help="recorded events, JSON Lines")
    source.add_argument(
        "--pipeline", type=Path, metavar="FILE", help="use the events of this pipeline's source"
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=10_000,
        metavar="N",
        help="rows of the pipeline's source (default: %(default)s)",
    )
    parser.add_argument(
        "--previous", type=Path, metavar="PACKAGE", help="previous version's, for comparison"
    )
    parser.add_argument("--json", action="store_true", help="the whole report as JSON")
    parser.set_defaults(run=run_simulate)


def run_simulate(options: argparse.Namespace) -> int:
    """Run a simulation and print its result.

    Returns:
        0 if all kinds passed, else the exit code of ``DeployError``.

    Raises:
        SpecFileError: The kinds are wrong, or the extra is not installed.
        PackageError: A file is not a package.
        SourceError: The events are wrong.
    """
    try:
        from walle_deploy.simulation.report import as_json  # noqa: PLC0415 - heavy
        from walle_deploy.simulation.simulate import simulate  # noqa: PLC0415 - same
    except ModuleNotFoundError as error:
        raise SpecFileError(
            f"the extra 'deploy' is not installed ({error.name} is missing): "
            f"{how_to_install('deploy')}"
        ) from error
    from walle_deploy.simulation.events import read_events, record_events  # noqa: PLC0415 - same
    from walle_deploy.simulation.kinds import DeviceKinds  # noqa: PLC0415 - same
    from walle_stream.spec.single import load_single  # noqa: PLC0415 - same

    kinds = load_single(options.kinds, DeviceKinds).spec
    events = None
    if options.pipeline is not None:
        events = record_events(options.pipeline, options.limit)
    elif options.events is not None:
        events = read_events(options.events)
    previous = None if options.previous is None else _read(options.previous)
    report = simulate(_read(options.package), kinds, events, previous)
    if options.json:
        print(json.dumps(as_json(report)))
    else:
        _print_table(report)
    if report.status == "passed":
        return 0
    print(f"walle: {report.text}", file=sys.stderr)
    return DeployError.exit_code


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise PackageError(f"{file}: cannot be read: {error.strerror or error}") from error


def _print_table(report: "SimulationReport") -> None:
    rows = [_COLUMNS, *(_row(kind) for kind in report.kinds)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _row(kind: "KindReport") -> tuple[str, ...]:
    status, run = kind.status.replace("_", " "), kind.candidate
    if run is None:
        return kind.kind, status, "", "", "", "", ""
    drift = "" if kind.drift is None else f"{kind.drift.ratio:.1%}"
    times = _milliseconds(run, 0.5), _milliseconds(run, 0.99)
    return kind.kind, status, str(run.runs), str(run.failures), *times, drift


def _milliseconds(run: "VersionRun", share: float) -> str:
    from walle_deploy.monitoring.counts import percentile  # noqa: PLC0415 - quick start

    time_us = percentile(run.latency_us, share)
    return "" if time_us is None else f"{time_us / 1_000.0:.2f}"
