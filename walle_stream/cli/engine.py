"""Sub-commands of the tensor engine: profile, operators, run."""

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from walle_stream.cli.engine_inputs import given_inputs, made_inputs
from walle_stream.cli.engine_tables import (
    count_table,
    kernel_table,
    node_table,
    operator_table,
    stage_table,
)
from walle_stream.cli.render import ResultConsole
from walle_stream.engine import load
from walle_stream.errors import EngineError

_FORMATS: Final = frozenset({"b", "i", "u", "f", "c"})
"""Kinds of dtype that numpy's file format can store."""


def profile(options: argparse.Namespace) -> int:
    """Time a model by operator and node, and show the savings of the passes."""
    from walle_stream.engine.flame import flame_svg  # noqa: PLC0415  # seldom

    module = load(options.model, backend=options.backend, threads=options.threads)
    inputs, notes = made_inputs(module, dict(options.input))
    found = module.profile(inputs, options.repeats)
    if options.svg is not None:
        with _writing(options.svg):
            options.svg.write_text(flame_svg(found), encoding="utf-8")
    if options.json:
        print(msgspec.json.encode({**found.to_builtins(), "notes": notes}).decode())
        return 0
    console = ResultConsole(highlight=False)
    for note in notes:
        console.print(note, style="dim", markup=False)
    console.print(operator_table(found))
    console.print(kernel_table(found))
    console.print(node_table(found, options.nodes))
    console.print(stage_table(found))
    if options.svg is not None:
        console.print(f"drawn: {options.svg}", markup=False)
    return 0


def operators(options: argparse.Namespace) -> int:
    """Print the operators of each kind, their numbers and the work that they save."""
    # imported here, because the rules are a hundred modules
    from walle_stream.engine.counts import (  # noqa: PLC0415
        PAPER_BACKENDS,
        operator_counts,
        operator_rows,
    )

    counts, rows = operator_counts(), operator_rows()
    if options.json:
        work = {
            "backends": PAPER_BACKENDS,
            "before": counts.before(PAPER_BACKENDS),
            "after": counts.after(PAPER_BACKENDS),
            "saved": counts.saved(PAPER_BACKENDS),
        }
        print(msgspec.json.encode({"counts": counts, "work": work, "operators": rows}).decode())
        return 0
    console = ResultConsole(highlight=False)
    console.print(count_table(counts, rows))
    for kind in dict.fromkeys(each.kind for each in sorted(rows, key=lambda row: row.kind)):
        names = [f"{row.domain}.{row.name}" if row.domain else row.name
                 for row in rows if row.kind == kind]  # fmt: skip
        console.print(f"[bold]{kind}[/] ({len(names)}): {', '.join(names)}\n")
    return 0


def run(options: argparse.Namespace) -> int:
    """Run a model once, with arrays from files, and write its outputs into files."""
    module = load(options.model, backend=options.backend, threads=options.threads)
    outputs = module.run(given_inputs(dict(options.input)), maps=False)
    with _writing(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
    facts: list[dict[str, Any]] = []
    for name, array in _flat(outputs):
        stored = _storable(array)
        path = _free_path(options.out, name, {fact["file"] for fact in facts})
        np.save(path, stored, allow_pickle=False)
        facts.append({"name": name, "dtype": array.dtype.name, "shape": list(array.shape),
                      "file": str(path)})  # fmt: skip
    if options.json:
        print(msgspec.json.encode({"outputs": facts}).decode())
        return 0
    for fact in facts:
        print(f"{fact['name']}: {fact['dtype']} {fact['shape']} in {fact['file']}")
    return 0


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn an error of the file system into one line.

    Raises:
        EngineError: The path cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise EngineError(f"{path} cannot be written: {error.strerror or error}") from error


def _flat(outputs: dict[str, Any]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for name, value in outputs.items():
        if isinstance(value, list):
            flat += _flat({f"{name}.{number}": item for number, item in enumerate(value)})
        elif value is not None:
            flat.append((name, value))
    return flat


def _storable(array: Any) -> Any:
    """Return an array that numpy can store: text of one width, narrow floats as float32."""
    if array.dtype.kind == "O":
        return array.astype(str)
    if array.dtype.kind in _FORMATS:
        return array
    whole = array.dtype.name.startswith(("int", "uint"))
    return array.astype(np.int8 if whole else np.float32)


def _free_path(folder: Path, name: str, taken: set[str]) -> Path:
    # names come from the model, and must not lead out of the folder
    stem = re.sub(r"[^\w.-]", "_", name)[:100].lstrip(".") or "output"
    path = folder / f"{stem}.npy"
    number = 1
    while str(path) in taken:
        number += 1
        path = folder / f"{stem}-{number}.npy"
    return path
