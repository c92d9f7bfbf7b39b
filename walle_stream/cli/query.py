"""Sub-commands that read a data directory, even while a pipeline runs on it."""

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from itertools import chain, islice

import msgspec

from walle_stream.app.figures.ledger import read_ledger
from walle_stream.app.queries.exporting import FORMATS, export_features
from walle_stream.app.queries.query import (
    canonical_state,
    features_lines,
    features_records,
    full_state,
)


def features_list(options: argparse.Namespace) -> int:
    """Print every feature, by device and sequence number."""
    _print(islice(features_lines(options.data_dir, task=options.task), options.limit))
    return 0


def features_get(options: argparse.Namespace) -> int:
    """Print the features of one device."""
    lines = features_lines(options.data_dir, device_id=options.device, task=options.task)
    first = next(lines, None)
    if first is None:
        line = f"device {options.device!r} has no features: walle features list shows the devices"
        print(f"walle: {line}", file=sys.stderr)
    else:
        _print(chain([first], lines))
    return 0


def features_export(options: argparse.Namespace) -> int:
    """Write features into a file as a table."""
    kind = options.format or options.file.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        options.refuse(
            f"{options.file}: its name ends with neither .csv nor .parquet: give --format"
        )
    read = partial(features_records, options.data_dir, options.task)
    exported = export_features(read, options.file, kind)
    if options.json:
        print(msgspec.json.encode(exported._asdict()).decode())
    else:
        print(f"{options.file}: {exported.features:,} features, {exported.columns} columns")
    return 0


def state_export(options: argparse.Namespace) -> int:
    """Print the state of all devices as JSON lines."""
    export = canonical_state if options.canonical else full_state
    _print(export(options.data_dir))
    return 0


def ledger(options: argparse.Namespace) -> int:
    """Print the bytes that each task sent, beside those of the raw rows."""
    report = read_ledger(options.data_dir)
    if options.json:
        print(msgspec.json.encode(report.to_builtins()).decode())
        return 0
    # imported here, because the other commands have no tables
    from walle_stream.cli.render import ResultConsole, ledger_table  # noqa: PLC0415

    ResultConsole(highlight=False).print(ledger_table(report))
    return 0


def _print(lines: Iterable[bytes]) -> None:
    write = sys.stdout.buffer.write
    for line in lines:
        write(line + b"\n")
    sys.stdout.buffer.flush()
