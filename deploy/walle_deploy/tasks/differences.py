"""Differences between two versions of a task, or between a folder and its last commit."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.tasks.audiences import find_own_files
from walle_deploy.tasks.checkouts import checkout
from walle_deploy.tasks.definitions import FILES_FILE, user_paths
from walle_deploy.tasks.folders import open_folder
from walle_deploy.tasks.git import Git
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.mirrors import Mirror, open_mirror
from walle_deploy.tasks.trees import TreeFile, list_tree
from walle_stream.errors import RefNotFoundError


class Change(msgspec.Struct, frozen=True):
    """A changed file, or a change of an audience's file."""

    kind: Literal["added", "removed", "changed"]
    path: str
    audience: str = ""
    """A device id or ``user:ID``; empty for a file of the branch."""
    resource: str = ""
    """The script's name of an exclusive file."""


class Difference(msgspec.Struct, frozen=True):
    """Differences between two states of a scenario's tasks."""

    files: tuple[Change, ...]
    audiences: tuple[Change, ...]
    """Devices and users that get another file, one more, or one less."""
    patch: str
    """Git's patch, with bytes that are not UTF-8 replaced."""


def diff_versions(group: Group, before: TaskRef, after: TaskRef) -> Difference:
    """Return the differences between two tasks or versions of a scenario; blocks.

    Raises:
        RefNotFoundError: One does not exist, or they belong to different scenarios.
        SpecFileError: A ``files.yaml`` is wrong.
        GitError: The group does not answer, or a commit has a file that no task may have.
    """
    if before.scenario != after.scenario:
        raise RefNotFoundError(
            f"{before} and {after} are of different scenarios: compare two of the same scenario"
        )
    with open_mirror(group, before.scenario) as mirror:
        old, new = (_state(mirror, mirror.commit(ref), str(ref)) for ref in (before, after))
        return _difference(mirror.git, old, new)


def diff_folder(folder: Path) -> Difference:
    """Return the differences between a working folder and its last commit; blocks.

    Raises:
        RefNotFoundError: The folder is not a working folder of a task.
        SpecFileError: A ``files.yaml`` is wrong.
        GitError: The group does not answer, or does not have the last commit.
        ConflictError: Another command keeps the folder locked.
    """
    with open_folder(folder) as here, open_mirror(here.group, here.ref.scenario) as mirror:
        tree = here.staged_tree()
        old = _state(mirror, here.head(), str(here.ref))
        new = _read(here.folder, list_tree(here.git, tree, str(folder)), tree, str(folder))
        return _difference(here.git, old, new)


def _difference(git: Git, old: "_State", new: "_State") -> Difference:
    files = tuple(Change(kind, path) for kind, path in _compared(old.blobs, new.blobs))
    audiences = tuple(
        Change(kind, "", audience, resource)
        for kind, (audience, resource) in _compared(old.own, new.own)
    )
    arguments = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
    patch = git.run(*arguments, old.commit, new.commit).decode(errors="replace")
    return Difference(files, audiences, patch)


class _State(msgspec.Struct, frozen=True):
    commit: str
    blobs: dict[str, str]
    """Blob ids by path."""
    own: dict[tuple[str, str], str]
    """Blob ids by audience and resource."""


def _state(mirror: Mirror, commit: str, name: str) -> _State:
    return _read(*checkout(mirror, commit, name), commit, name)


def _read(folder: Path, files: Sequence[TreeFile], commit: str, name: str) -> _State:
    blobs = {file.path: file.blob for file in files}
    with user_paths(f"{name}:", folder):
        own_files = find_own_files(folder / FILES_FILE, list(blobs))
    own = {(file.audience, file.resource): blobs[file.path] for file in own_files}
    return _State(commit, blobs, own)


def _compared[K](
    old: dict[K, str], new: dict[K, str]
) -> Iterator[tuple[Literal["added", "removed", "changed"], K]]:
    for key in sorted({*old, *new}, key=str):
        if key not in old:
            yield "added", key
        elif key not in new:
            yield "removed", key
        elif old[key] != new[key]:
            yield "changed", key
