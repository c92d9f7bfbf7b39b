"""The definition on a task's branch: ``task.yaml``, its script, resources, and ``files.yaml``.

It is read from a folder with only the files of one commit. So an uncommitted file is missed here
and not on a device. ``building`` and the commands that commit and tag read it from a checkout.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.audiences import OwnFile, find_own_files
from walle_stream.app.programs.programs import compile_task
from walle_stream.errors import PackageError, ScriptError, SpecFileError, WalleError
from walle_stream.spec.loader import load_task
from walle_stream.spec.models import Task

TASK_FILE: Final = "task.yaml"
FILES_FILE: Final = "files.yaml"
"""Name of the optional file that declares audiences."""

PIPELINE_FILE: Final = "pipeline.yaml"
"""Name of the optional pipeline over a sample, for tests."""


class Definition(msgspec.Struct, frozen=True):
    """A task in a commit."""

    task: Task
    """The task, with the tag as its version."""
    own: tuple[OwnFile, ...]


def read_definition(ref: TaskRef, folder: Path, paths: Sequence[str]) -> Definition:
    """Read a task and check all of it, including the script, which is compiled.

    Raises:
        SpecFileError: A definition is wrong, is of another task, or names an uncommitted file.
        ScriptError: The script is wrong.
    """
    task = _load(ref, folder)
    inside = set(paths)
    named = {
        name: os.path.relpath(os.path.normpath(path), folder)
        for name, path in {"script": task.spec.script, **task.spec.resources}.items()
    }
    for name, relative in named.items():
        if relative not in inside:
            what = "spec.script" if name == "script" else f"spec.resources[{name!r}]"
            raise SpecFileError(
                f"{folder / TASK_FILE}: {what}: {relative} is not among the files of the commit: "
                "only files of the task's own branch travel; check .gitignore, too",
                str(folder / TASK_FILE),
            )
    own = find_own_files(folder / FILES_FILE, paths)
    by_path = {file.path: file for file in own}
    for relative in named.values():
        one = by_path.get(relative)
        if one is not None:
            raise SpecFileError(
                f"{folder / FILES_FILE}: {one.path} is for {one.audience} alone, but {TASK_FILE} "
                "gives it to all devices: remove it from one of the two files",
                str(folder / FILES_FILE),
            )
    compile_task(task)
    return Definition(task, tuple(own))


@contextmanager
def user_paths(start: str, folder: Path) -> Iterator[None]:
    """Give files of a checkout the user's paths in errors.

    ``start`` replaces the checkout's path, such as by ``shop/ipv@v2:`` or ``folder/``.

    Raises:
        WalleError: The original error with replaced paths.
    """
    inside = f"{folder}{os.sep}"
    try:
        yield
    except (SpecFileError, ScriptError, PackageError) as error:
        message = error.message.replace(inside, start)
        replacement: WalleError = PackageError(message)
        if isinstance(error, SpecFileError):
            file = error.file.replace(inside, start)
            replacement = SpecFileError(message, file, error.line, error.column)
        elif isinstance(error, ScriptError):
            replacement = ScriptError(message, *error.args[1:])
        raise replacement from error


def _load(ref: TaskRef, folder: Path) -> Task:
    file = folder / TASK_FILE
    if not file.is_file():
        raise SpecFileError(
            f"{file}: is missing: a task's branch has its definition there; walle task init makes "
            "one",
            str(file),
        )
    # without the environment, so that the same commit gives the same bytes everywhere
    task = load_task(file, {})
    if task is None:
        raise SpecFileError(f"{file}:1:1: expected one Task in the file", str(file), 1, 1)
    name = task.metadata.name
    if name != ref.task:
        raise SpecFileError(
            f"{file}: metadata.name is {name!r}, but the branch is {ref.task!r}: both must be the "
            "same",
            str(file),
        )
    if not ref.version:
        return task
    if "version" in task.spec.model_fields_set and task.spec.version != ref.version:
        raise SpecFileError(
            f"{file}: spec.version is {task.spec.version!r}, the tag says {ref.version!r}: leave "
            "spec.version out, because the tag is the version",
            str(file),
        )
    return task.model_copy(update={"spec": task.spec.model_copy(update={"version": ref.version})})
