"""``walle simulate``: a simulated shop as a file, of JSON Lines or packed.

The file has the connector's events in the order of arrival. Lines are for other tools, for
comparisons and for people. Packed files are for the connector ``events``, which then need not parse
payloads.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from rich.console import Console
from rich.progress import track

from walle_connectors.file_stream import written
from walle_connectors.simulator.formats import FORMATS, make_format
from walle_connectors.simulator.model import SimulatorModel
from walle_connectors.simulator.timeline import Timeline
from walle_stream.errors import SourceError, SpecFileError


def add(commands: Any) -> None:
    """Add the command to the parser; an entry point of ``walle_stream.commands``."""
    parser = commands.add_parser(
        "simulate", help="write the events of a simulated shop into a file"
    )
    parser.add_argument(
        "out", type=Path, metavar="OUT", help="output file; compressed if its name ends in .gz"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of the connector: seed, devices, sessions, payloadBytes, ...",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="JSON Lines, or packed: fields for tasks, and payloads that are never parsed",
    )
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the file; a failure leaves no file.

    Raises:
        SpecFileError: A key is not valid.
        SourceError: The file cannot be written.
    """
    model = _model(options.set)
    timeline, shape = Timeline(model), make_format(options.format, model)
    lines = size_bytes = 0
    console = Console(stderr=True)
    windows = track(
        range(timeline.windows), "simulating", console=console, disable=not sys.stderr.isatty()
    )
    if not options.out.name or (options.out.exists() and not options.out.is_file()):
        # the rename would replace a directory or a device
        raise SourceError(f"{options.out} is not a file: name a file that may be overwritten")
    with written(options.out) as file:
        size_bytes += file.write(shape.begin())
        for window in windows:
            for line in timeline.lines(window):
                size_bytes += file.write(shape.add(line.data))
                lines += 1
            size_bytes += file.write(shape.flush())
    if options.json:
        made = {"file": str(options.out), "events": lines, "bytes": size_bytes}
        sys.stdout.write(json.dumps(made) + "\n")
    else:
        sys.stdout.write(f"{options.out}: {lines:,} events, {size_bytes:,} bytes\n")
    return 0


def _model(overrides: list[str]) -> SimulatorModel:
    keys: dict[str, Any] = {}
    for text in overrides:
        name, is_given, value = text.partition("=")
        if not is_given:
            raise SpecFileError(f"--set: expected KEY=VALUE, found {text!r}")
        try:
            keys[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SpecFileError(f"--set: {name} has no YAML value: {value!r}") from error
    try:
        return SimulatorModel.model_validate(keys)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise SpecFileError(f"--set: {place}: {first['msg']}, found {first['input']!r}") from error
