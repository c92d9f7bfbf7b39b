"""``files.yaml`` of a task: the files of one device or user alone.

Everything that ``task.yaml`` names under ``spec.resources`` is shared, and travels in the package.
``files.yaml`` declares exclusive files by a pattern, with one file per device or user. The id
stands at the pattern's ``*``. ``definitions`` reads the file from a checkout.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from pydantic import AfterValidator, Field, StringConstraints

from walle_deploy.model.owners import device_problem, owner_of_user
from walle_stream.spec.document import Document, Key, shown
from walle_stream.spec.models import ResourceName
from walle_stream.spec.single import load_document
from walle_stream.spec.strict import Strict
from walle_stream.types import device_id_problem

_PATTERN: Final = re.compile(r"(?:[^*?\[\]/\\]+/)*[^*?\[\]/\\]*\*[^*?\[\]/\\]*")


def _with_one_star(text: str) -> str:
    if not _PATTERN.fullmatch(text):
        raise ValueError(
            f"expected a path with one * in its last part, such as users/*.bin, found {shown(text)}"
        )
    return text


class ExclusiveFiles(Strict):
    """A resource of which each device or user has its own file."""

    name: ResourceName = Field(description="Name for the script: ctx.resource(name).")
    files: Annotated[str, StringConstraints(max_length=500), AfterValidator(_with_one_star)] = (
        Field(
            description="Path in the branch with one * in its last part, which stands for the id."
        )
    )
    by: Literal["device", "user"] = Field(default="device", description="Kind of the ids.")


class TaskFilesSpec(Strict):
    """The audiences of exclusive files."""

    exclusive: tuple[ExclusiveFiles, ...] = Field(
        default=(), max_length=100, description="Files of one device or user alone."
    )


class TaskFiles(Strict):
    """The audiences of a task's files."""

    api_version: Literal["walle/v1"]
    kind: Literal["TaskFiles"]
    spec: TaskFilesSpec = Field(default_factory=TaskFilesSpec)


class OwnFile(msgspec.Struct, frozen=True):
    """An exclusive file that matches a pattern."""

    audience: str
    """A device id, or ``user:ID``."""
    resource: str
    path: str


def find_own_files(file: Path, paths: Sequence[str]) -> list[OwnFile]:
    """Read ``files.yaml``, if it exists, and match its patterns; sorted by audience, then resource.

    ``paths`` are the paths of all files of the commit.

    Raises:
        SpecFileError: The file is wrong, a pattern matches no file, or a file's name has no id.
    """
    if not file.exists():
        return []
    # without the environment, so that the same commit means the same everywhere
    document, definition = load_document(file, TaskFiles, {})
    own_files: list[OwnFile] = []
    names: set[str] = set()
    for index, exclusive in enumerate(definition.spec.exclusive):
        key: Key = ("spec", "exclusive", index)
        if exclusive.name in names:
            raise document.error((*key, "name"), f"the resource {exclusive.name!r} occurs twice")
        names.add(exclusive.name)
        own = _matches(document, key, exclusive, paths)
        if not own:
            message = f"no file of the task matches {shown(exclusive.files)}"
            raise document.error((*key, "files"), message)
        own_files += own
    return sorted(own_files, key=lambda own: (own.audience, own.resource))


def _matches(
    document: Document, key: Key, exclusive: ExclusiveFiles, paths: Sequence[str]
) -> list[OwnFile]:
    before, _, after = exclusive.files.partition("*")
    pattern = re.compile(rf"{re.escape(before)}([^/]*){re.escape(after)}")
    own = []
    for path in paths:
        match = pattern.fullmatch(path)
        if match is None:
            continue
        name = match[1]
        problem = device_problem(name) if exclusive.by == "device" else device_id_problem(name)
        if problem is not None:
            message = f"{shown(path)} names no {exclusive.by}: {problem}"
            raise document.error((*key, "files"), message)
        owner = owner_of_user(name) if exclusive.by == "user" else name
        own.append(OwnFile(audience=owner, resource=exclusive.name, path=path))
    return own
