"""Sub-commands about definitions: validate, schema, init."""

import argparse
import json
import os
import shlex
from pathlib import Path

from walle_stream.app.resources import find_definition
from walle_stream.app.scaffold import make_project
from walle_stream.app.validation import validate_file
from walle_stream.cli.run import say
from walle_stream.spec.connectors import ConnectorModels, further_kinds
from walle_stream.spec.schema import json_schema


def validate(options: argparse.Namespace) -> int:
    """Check a file, its tasks, their scripts and packages; print the kind and name."""
    summary = validate_file(find_definition(options.file), options.set)
    for line in summary.get("warnings", ()):
        say(f"warning: {line}")
    if options.json:
        print(json.dumps(summary))
    else:
        print(f"{options.file}: valid, {summary['kind']} {summary['name']!r}")
    return 0


def schema_export(_options: argparse.Namespace) -> int:
    """Print the JSON Schema."""
    print(
        json.dumps(
            json_schema(ConnectorModels(), further_kinds().values()), indent=2, sort_keys=True
        )
    )
    return 0


def init(options: argparse.Namespace) -> int:
    """Make a new pipeline."""
    folder = Path(options.name)
    for path in make_project(folder):
        print(f"  {path}")
    # a name that begins with a dash would be parsed as an option
    prefix = f"{os.curdir}{os.sep}" if options.name.startswith("-") else ""
    shown = shlex.quote(f"{prefix}{folder}")
    print(f"made {shown}; run it:   walle run {shown}/pipeline.yaml")
    print(f"test it (needs pytest): python -m pytest {shown}")
    return 0
