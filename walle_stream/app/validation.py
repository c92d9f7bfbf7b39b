"""Validation of a definition without a run: ``walle validate``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from walle_stream.app.assembly import Assembly
from walle_stream.app.programs.programs import compile_task, unpack_task
from walle_stream.spec.connectors import further_kinds
from walle_stream.spec.loader import load_task
from walle_stream.spec.single import kind_of, load_single
from walle_stream.vm.package.reader import SUFFIX


def validate_file(file: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Check a pipeline, task or package with all its references, or another kind of file.

    Returns:
        ``kind``, ``name`` and the names of the tasks. A pipeline also has ``warnings``: likely
            mistakes in the definition, or in the first rows of a source file.

    Raises:
        WalleError: The file is wrong.
    """
    if file.suffix == SUFFIX:
        return _summary("Package", unpack_task(file).name)
    kind = kind_of(file)
    if kind not in {"", "Task", "Pipeline"} and (model := further_kinds().get(kind)) is not None:
        loaded = load_single(file, model)
        metadata = getattr(loaded, "metadata", None)
        return _summary(kind, getattr(metadata, "name", ""), ())
    task = load_task(file)
    if task is not None:
        return _summary("Task", compile_task(task).name)
    assembly = Assembly.load(file, overrides)
    assembly.check_services()
    summary = _summary("Pipeline", assembly.name, sorted(task.name for task in assembly.tasks))
    mistakes = assembly.mistakes()
    of_file = mistakes.look_at_file()
    return {**summary, "warnings": [*mistakes.warnings(), *of_file]}


def _summary(kind: str, name: str, tasks: Sequence[str] | None = None) -> dict[str, Any]:
    return {"kind": kind, "name": name, "tasks": [name] if tasks is None else tasks}
