"""A version's files from its tag: the package and the exclusive files.

The same tag gives the same bytes on the same Pythons, from any clone, in any folder, at any time.
Every file has its SHA-256. A release and the trust metadata take the files from here.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import VersionFiles
from walle_deploy.tasks.audiences import OwnFile
from walle_deploy.tasks.checkouts import checkout
from walle_deploy.tasks.definitions import read_definition, user_paths
from walle_deploy.tasks.groups import Group
from walle_deploy.tasks.mirrors import open_mirror
from walle_stream.app.programs.isolation import note_built
from walle_stream.app.programs.packages import package_task, write_package
from walle_stream.errors import PackageError, RefNotFoundError
from walle_stream.vm.package.reader import read_package

INDEX_FILE: Final = "version.json"
"""Name of the file that describes the others, see ``write_version``."""

_FORMAT: Final = 1


class BuiltVersion(msgspec.Struct, frozen=True):
    """All files of one version."""

    ref: TaskRef
    commit: str
    package: bytes
    """Content of the file ``files.shared[0]``."""
    files: VersionFiles
    """Every file with its target name, which is also its ``url``, its SHA-256 and its size."""
    contents: Mapping[str, Path]
    """Path of each exclusive file in the cache, by target; callers must not change the file, and
    should copy it soon."""


def build_version(group: Group, ref: TaskRef, pythons: Sequence[str] = ()) -> BuiltVersion:
    """Build a version from its tag; blocks, about 0.3 s for each interpreter.

    Raises:
        RefNotFoundError: The version does not exist, or ``ref`` names none.
        ConflictError: The tag was moved.
        GitError: The group does not answer, or the commit has a file that no task may have.
        SpecFileError: A definition in the commit is wrong.
        ScriptError: The script is wrong.
        PackageError: An interpreter cannot take part, or the package is too large.
    """
    if not ref.version:
        raise RefNotFoundError(f"{ref} names no version: give one, such as {ref}@v1")
    with open_mirror(group, ref.scenario) as mirror:
        commit = mirror.commit(ref)
        folder, files = checkout(mirror, commit, str(ref))
        with user_paths(f"{ref}:", folder):
            definition = read_definition(ref, folder, [file.path for file in files])
            package = package_task(definition.task, pythons)
            name = read_package(package).manifest.task.file_name  # also checks that it can be read
        start = f"{ref.name}/{ref.version}"
        contents: dict[str, Path] = {}
        exclusive: dict[str, tuple[PushedFile, ...]] = {}
        for own in definition.own:
            pushed = _own_file(start, own, folder / own.path)
            contents[pushed.target] = folder / own.path
            exclusive[own.audience] = (*exclusive.get(own.audience, ()), pushed)
    target = f"{start}/{name}"
    digest = hashlib.sha256(package).hexdigest()
    shared = PushedFile(target, target, digest, len(package))
    return BuiltVersion(ref, commit, package, VersionFiles((shared,), exclusive), contents)


def write_version(built: BuiltVersion, folder: Path) -> list[Path]:
    """Write a version's files under their names, the index last; existing files are replaced.

    Returns:
        The paths: the package, exclusive files, ``version.json`` with ``format`` (1), ``ref``,
        ``commit``, ``shared`` and ``exclusive`` (by audience).

    Raises:
        PackageError: The folder cannot be written.
        OSError: The disk is full.
    """
    start = f"{built.ref.name}/{built.ref.version}/"
    shared = built.files.shared[0]
    index = {
        "format": _FORMAT,
        "ref": str(built.ref),
        "commit": built.commit,
        "shared": built.files.shared,
        "exclusive": built.files.exclusive,
    }
    paths = [folder / shared.target.removeprefix(start)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for target, source in sorted(built.contents.items()):
            paths.append(folder / target.removeprefix(start))
            paths[-1].parent.mkdir(parents=True, exist_ok=True)
            write_package(source.read_bytes(), paths[-1])
    except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise PackageError(
            f"{folder}: cannot be written: {error.strerror}: give another -o", str(folder)
        ) from error
    write_package(built.package, paths[0])
    note_built(built.package)
    paths.append(folder / INDEX_FILE)
    text = msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n"
    write_package(text, paths[-1])
    return paths


def _own_file(start: str, own: OwnFile, path: Path) -> PushedFile:
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    # every device reads the target's name, so it must not reveal the file's owner
    target = f"{start}/exclusive/{own.resource}/{sha256}"
    return PushedFile(target, target, sha256, path.stat().st_size, "exclusive", own.resource)
