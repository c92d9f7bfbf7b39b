"""A repository's newest metadata, read and verified as on a device.

The publisher trusts its own folder no more than a device does. It never builds on unsigned files:
otherwise, anybody who can write to the folder could get them signed with the next publish.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Never

from tuf.api.exceptions import RepositoryError
from tuf.api.metadata import Metadata, Root, Snapshot, Targets, Timestamp

from walle_deploy.trust.layout import PRIVATE
from walle_deploy.trust.roles import BINS
from walle_stream.errors import IntegrityError, RefNotFoundError

_FIRST: Final = frozenset({"root", "targets", "snapshot"})
_VERSIONED: Final = re.compile(r"([1-9][0-9]*)\.([a-z0-9-]+)\.json")


class CurrentMetadata:
    """The metadata that ``timestamp.json`` leads to; bins are read on demand."""

    root: Metadata[Root]
    timestamp: Metadata[Timestamp]
    snapshot: Metadata[Snapshot]
    targets: Metadata[Targets]

    def __init__(self, folder: Path) -> None:
        """Read the four top roles.

        Raises:
            RefNotFoundError: There is no repository, or its creation was interrupted.
            IntegrityError: The metadata does not match its signatures.
        """
        self.folder = folder
        if not (folder / "timestamp.json").is_file():
            refuse_remains(folder)
            raise RefNotFoundError(
                f"{folder.parent.parent}: there is no repository, or its creation was interrupted: "
                "make it with walle repository init"
            )
        newest = newest_root_version(folder)
        self.root = self._read("root", newest)
        self._before = self._read("root", newest - 1) if newest > 1 else None
        self._verify("root", self.root)
        self.outdated: set[str] = set()
        """Roles whose metadata verifies only with the previous root, because a rotation was
        interrupted after it wrote the new root."""
        self.timestamp = self._checked("timestamp", None)
        meta = self.timestamp.signed.snapshot_meta
        self.snapshot = self._checked("snapshot", meta.version)
        if self.snapshot.signed.version != meta.version:
            _refuse(folder, "snapshot", "its version is not the timestamp's")
        self.targets = self._checked("targets", self.version_of("targets"))

    def version_of(self, name: str) -> int:
        """Return a role's version in the snapshot; 0 if it is absent."""
        meta = self.snapshot.signed.meta.get(f"{name}.json")
        return meta.version if meta else 0

    def bin_names(self) -> list[str]:
        """Return the names of the existing bins, in order."""
        names = (name.removesuffix(".json") for name in self.snapshot.signed.meta)
        return sorted(name for name in names if name.startswith(f"{BINS}-"))

    def bin_of(self, target: str) -> str:
        """Return the name of a target's bin.

        Raises:
            IntegrityError: The targets delegate to no bins.
        """
        delegations = self.targets.signed.delegations
        if delegations is None or delegations.succinct_roles is None:
            _refuse(self.folder, "targets", "it delegates to no bins")
        return delegations.succinct_roles.get_role_for_target(target)

    def read_bin(self, name: str) -> Metadata[Targets] | None:
        """Read a bin; None if it has no target yet.

        Raises:
            IntegrityError: The bin does not match its signature.
        """
        version = self.version_of(name)
        if not version:
            return None
        metadata: Metadata[Targets] = self._read(name, version)
        try:
            self.targets.signed.verify_delegate(name, metadata.signed_bytes, metadata.signatures)
        except RepositoryError as error:
            _refuse(self.folder, name, error)
        if metadata.signed.version != version:
            _refuse(self.folder, name, "its version is not the snapshot's")
        # one key signs all bins, so the signature does not tell which bin this is
        if any(self.bin_of(target) != name for target in metadata.signed.targets):
            _refuse(self.folder, name, "it is another bin")
        return metadata

    def _checked(self, name: str, version: int | None) -> Metadata[Any]:
        metadata = self._read(name, version)
        self._verify(name, metadata)
        if version is not None and metadata.signed.version != version:
            _refuse(self.folder, name, f"expected version {version}")
        return metadata

    def _verify(self, name: str, metadata: Metadata[Any]) -> None:
        signed, signatures = metadata.signed_bytes, metadata.signatures
        try:
            self.root.signed.verify_delegate(name, signed, signatures)
            if name == "root" and self._before:
                self._before.signed.verify_delegate(name, signed, signatures)
        except RepositoryError as error:
            if name == "root" or self._before is None:
                _refuse(self.folder, name, error)
            try:
                self._before.signed.verify_delegate(name, signed, signatures)
            except RepositoryError:
                _refuse(self.folder, name, error)
            self.outdated.add(name)

    def _read(self, name: str, version: int | None) -> Metadata[Any]:
        path = self.folder / (f"{name}.json" if version is None else f"{version}.{name}.json")
        try:
            return Metadata.from_bytes(path.read_bytes())
        except (OSError, RepositoryError) as error:
            _refuse(self.folder, name, error)


def written_files(folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Return name, version and path of every metadata file, also after interrupted commands."""
    for path in folder.iterdir():
        if match := _VERSIONED.fullmatch(path.name):
            yield match[2], int(match[1]), path


def refuse_remains(folder: Path) -> None:
    """Refuse the remains of a repository that lost its timestamp.

    Versions would begin at 1 again, and devices refuse versions older than those they know.

    The remains of an interrupted first ``init`` are accepted.

    Raises:
        IntegrityError: The folder holds more than an interrupted first ``init`` leaves.
    """
    private = folder.parent.parent / PRIVATE
    remains = next(private.iterdir(), None) if private.is_dir() else None
    for name, version, path in written_files(folder) if folder.is_dir() else ():
        if version > 1 or name not in _FIRST:
            remains = path
    if remains is not None:
        _refuse(folder, "timestamp", f"it is missing, but {remains.name} exists")


def newest_root_version(folder: Path) -> int:
    """Return the newest root's version, as devices find it: counted up to the first gap."""
    version = 0
    while (folder / f"{version + 1}.root.json").exists():
        version += 1
    return version


def _refuse(folder: Path, name: str, reason: object) -> Never:
    raise IntegrityError(
        f"{folder}: {name}: is not what was signed ({reason}): "
        "restore the folder from a copy; nothing was signed on top of it"
    ) from (reason if isinstance(reason, Exception) else None)
