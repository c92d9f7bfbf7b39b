"""``walle partition``: cut the source's file into one part for each partition."""

import argparse
import shlex

import msgspec

from walle_stream.app.cutting import cut_source
from walle_stream.app.resources import find_definition
from walle_stream.cli.render import run_progress


def partition(options: argparse.Namespace) -> int:
    """Cut the source's file, and print the place of its parts."""
    file = find_definition(options.file)
    with run_progress() as on_progress:
        place, manifest = cut_source(file, options.set, options.to, on_progress)
    count, rows = len(manifest.parts), sum(part.rows for part in manifest.parts)
    size = sum(part.size_bytes for part in manifest.parts)
    if options.json:
        made = {"folder": place, "partitions": count, "rows": rows, "bytes": size}
        print(msgspec.json.encode(made).decode())
    else:
        print(f"{place}: {rows:,} rows in {count} parts, {size:,} bytes")
        given = [f"--set={each}" for each in (*options.set, f"spec.source.path={place}")]
        print(f"run it:   {shlex.join(('walle', 'run', options.file, *given))}")
    return 0
