"""Publishing a version: its package and its exclusive files, signed with one change."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from walle_deploy.model.names import TaskRef
from walle_deploy.model.pushes import PushedFile
from walle_deploy.model.releases import VersionFiles
from walle_deploy.trust.layout import EXCLUSIVE, TARGETS, TREE, blob_path, put_blob
from walle_deploy.trust.repository import NewTarget, TrustedRepository
from walle_deploy.trust.tree import build_tree
from walle_stream.errors import ConflictError, RefNotFoundError
from walle_stream.faults import crash_point
from walle_stream.vm.package.reader import read_package

TREE_ROOT: Final = "exclusive"
"""Key of a package's custom metadata: root of the tree of exclusive files, or empty."""

type Progress = Callable[[int, int], None]
"""Called with the number of stored files, and of all files."""


class ExclusiveFile(msgspec.Struct, frozen=True):
    """A file for one device or one user."""

    owner: str
    """A device's id, or ``user:ID``."""
    resource: str
    content: bytes | Path


def publish_version(
    repository: TrustedRepository,
    ref: TaskRef,
    package: bytes | Path,
    exclusive: Iterable[ExclusiveFile] = (),
    on_progress: Progress | None = None,
) -> VersionFiles:
    """Sign and store the files of a version. A repetition changes nothing.

    Addresses in the result are relative to the CDN's and the CEN's.

    Raises:
        ConflictError: The version already has other files.
        DeployError: A key is missing.
        PackageError: The package is not valid.
        RefNotFoundError: The package is of another task or version, or a file does not exist.
        StoreFullError: The disk is full.
    """
    read = read_package(package)
    task = read.manifest.task
    # a version has one target name, so other bytes for it are noticed
    if (task.name, task.version) != (ref.task, ref.version) or not ref.version:
        raise RefNotFoundError(
            f"{read.file}: holds version {task.version!r} of the task {task.name!r}, not {ref}: "
            "publish it under its own name, or build another one from the version's tag"
        )
    name = f"{ref.name}/{ref.version}/{read.manifest.task.file_name}"
    by_owner = _store_exclusive(repository, ref, list(exclusive), on_progress)
    entries = {file.target: (file.sha256, file.size_bytes) for f in by_owner.values() for file in f}
    tree_folder = repository.folder / TREE
    root = build_tree(entries, lambda node: put_blob(tree_folder, node)[0]) if entries else b""
    custom = {
        "task": ref.name,
        "version": ref.version,
        "audience": "shared",
        TREE_ROOT: put_blob(tree_folder, root)[0] if root else "",
    }
    sha256, size_bytes = put_blob(repository.folder / TARGETS, package)
    crash_point("publish.stored")
    repository.add([NewTarget(name, package, custom)])
    url = f"targets/{blob_path(sha256)}"
    interpreters = read.manifest.interpreters
    return VersionFiles((PushedFile(name, url, sha256, size_bytes),), by_owner, interpreters)


def exclusive_name(ref: TaskRef, owner: str, resource: str) -> str:
    """Return the name in the version's tree of an exclusive file of a device or ``user:ID``."""
    return f"{ref.name}/{ref.version}/for/{quote(owner, safe='')}/{resource}"


def _store_exclusive(
    repository: TrustedRepository,
    ref: TaskRef,
    exclusive: list[ExclusiveFile],
    on_progress: Progress | None,
) -> dict[str, tuple[PushedFile, ...]]:
    by_owner: dict[str, tuple[PushedFile, ...]] = {}
    for count, source in enumerate(exclusive, 1):
        sha256, size_bytes = put_blob(repository.folder / EXCLUSIVE, source.content)
        name = exclusive_name(ref, source.owner, source.resource)
        url = f"exclusive/{blob_path(sha256)}"
        file = PushedFile(name, url, sha256, size_bytes, "exclusive", source.resource)
        others = by_owner.get(source.owner, ())
        if any(other.resource == source.resource for other in others):
            raise ConflictError(f"{ref}: {source.owner!r} has two files {source.resource!r}")
        by_owner[source.owner] = (*others, file)
        if on_progress:
            on_progress(count, len(exclusive))
    return by_owner
