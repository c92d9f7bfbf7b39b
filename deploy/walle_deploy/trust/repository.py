"""A repository of signed targets, with the operations of publishers.

Metadata follows The Update Framework (https://theupdateframework.github.io/specification) with
consistent snapshots. A change writes new files beside the old ones and replaces ``timestamp.json``
last. So readers see the state before or after it, also after a kill. The next change writes files
that no timestamp leads to again.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from tuf.api.metadata import TargetFile, Targets

from walle_deploy.trust.current import CurrentMetadata, refuse_remains
from walle_deploy.trust.keys import KeyFolder
from walle_deploy.trust.layout import METADATA, RETIRED, TARGETS, put_blob, put_file, sole_writer
from walle_deploy.trust.rotation import rotate_key
from walle_deploy.trust.signing import Signing, new_metadata
from walle_deploy.trust.status import RepositoryStatus, status_of
from walle_stream.clock import wall_ms
from walle_stream.errors import ConflictError, RefNotFoundError

BIN_BITS: Final = 10
"""Binary logarithm of the largest number of bins; docs/deploy/trust.md has the reason."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*")
_NAME_MAX: Final = 500


class NewTarget(msgspec.Struct, frozen=True):
    """A file to sign."""

    name: str
    """Name such as ``shop/ipv/v2/ipv-v2.walle``; other content never gets the same name."""
    content: bytes | Path
    custom: Mapping[str, Any] = {}
    """Fields that are signed with the file: ``task``, ``version``, ``audience``."""


class TrustedRepository:
    """A folder with signed metadata and its targets. Every method may block on the disk."""

    def __init__(
        self, folder: Path, keys: Path | None = None, clock: Callable[[], int] = wall_ms
    ) -> None:
        """Name a repository, which is read on demand.

        The folder has the layout of ``trust.layout``; its keys are in ``FOLDER/keys`` by default.
        The clock is in epoch milliseconds.
        """
        self.folder = folder
        self.metadata = folder / METADATA
        self.keys = KeyFolder(keys or folder / "keys")
        self._clock = clock
        self._signing = Signing(self.metadata, self.keys, clock)

    @classmethod
    def create(
        cls,
        folder: Path,
        keys: Path | None = None,
        *,
        root_keys: tuple[int, int] = (1, 1),
        bin_bits: int = BIN_BITS,
        clock: Callable[[], int] = wall_ms,
    ) -> Self:
        """Make keys and an empty repository. An interrupted creation starts again.

        ``root_keys`` has the number of root keys, and how many of them must sign a new root.
        There are 2 to the power of ``bin_bits`` bins.

        Raises:
            ConflictError: A repository already exists.
            IntegrityError: There was a repository, but its timestamp is missing.
            StoreFullError: The disk is full.
        """
        repository = cls(folder, keys, clock)
        with sole_writer(folder):
            if (repository.metadata / "timestamp.json").exists():
                raise ConflictError(
                    f"{folder}: a repository already exists here: name another folder"
                )
            refuse_remains(repository.metadata)
            repository._signing.create(root_keys, bin_bits)
        return repository

    def add(self, targets: Iterable[NewTarget]) -> int:
        """Sign all files with one change, and return the number of new ones.

        Raises:
            ConflictError: A name already has other content, or was retired; nothing was changed.
            RefNotFoundError: A name is not valid, or a file does not exist.
            DeployError: A key is missing.
            IntegrityError: The repository was altered.
            StoreFullError: The disk is full.
        """
        with sole_writer(self.folder):
            current = self._signing.load()
            bins: dict[str, Targets] = {}
            changed: dict[str, Targets] = {}
            added = 0
            for target in targets:
                if not _NAME.fullmatch(target.name) or len(target.name) > _NAME_MAX:
                    raise RefNotFoundError(
                        f"{target.name[:_NAME_MAX]!r} cannot be a target's name: expected "
                        "letters, digits and ._+- in parts between slashes"
                    )
                sha256, size_bytes = put_blob(self.folder / TARGETS, target.content)
                name, signed = _bin(current, bins, target.name)
                if target.name not in signed.targets and self.is_retired(target.name):
                    raise ConflictError(
                        f"{target.name}: was retired and cannot be published again: publish a new "
                        "version"
                    )
                if _enter(signed, target, sha256, size_bytes):
                    changed[name] = signed
                    added += 1
            if added:
                self._signing.commit(current, changed)
        return added

    def retire(self, names: Iterable[str]) -> int:
        """Sign the removal of targets, and return their number. No device installs them again.

        Raises:
            RefNotFoundError: A target does not exist; nothing was changed.
            StoreFullError: The disk is full; nothing was changed.
        """
        with sole_writer(self.folder):
            current = self._signing.load()
            changed: dict[str, Targets] = {}
            retired = list(names)
            for name in retired:
                if _bin(current, changed, name)[1].targets.pop(name, None) is None:
                    raise RefNotFoundError(f"{self.folder}: there is no target {name!r}")
            for name in retired:
                # write this first: whatever happens next, the target cannot come again
                put_file(self._retired(name), name.encode())
            if retired:
                self._signing.commit(current, changed)
        return len(retired)

    def is_retired(self, name: str) -> bool:
        """Return whether a target was retired. Quick; needs no keys."""
        return self._retired(name).exists()

    def _retired(self, name: str) -> Path:
        return self.folder / RETIRED / hashlib.sha256(name.encode()).hexdigest()

    def refresh(self) -> list[str]:
        """Sign all metadata with less than a third of its time left, and always the timestamp.

        Returns the names of the signed metadata.

        Raises:
            DeployError: A key is missing.
            IntegrityError: The repository was altered.
        """
        with sole_writer(self.folder):
            return self._signing.refresh(self._signing.load())

    def rotate(self, role: str, *, key_id: str = "", is_lost: bool = False) -> str:
        """Replace one key of a role by a new one, and return the new key's id.

        ``key_id`` is the beginning of the old key's id, or empty if the role has one key. With
        ``is_lost`` the old key is lost or stolen, and signs nothing any more.

        Raises:
            DeployError: A key is missing.
            RefNotFoundError: There is no such role or key.
        """
        with sole_writer(self.folder):
            return rotate_key(self._signing, role, key_id, is_lost=is_lost)

    def find(self, name: str) -> TargetFile | None:
        """Return the signed entry of a target; None if there is none."""
        current = CurrentMetadata(self.metadata)
        metadata = current.read_bin(current.bin_of(name))
        return metadata.signed.targets.get(name) if metadata else None

    def status(self) -> RepositoryStatus:
        """Return the state of every role; changes nothing.

        Raises:
            IntegrityError: The repository was altered.
            RefNotFoundError: There is no repository.
        """
        return status_of(CurrentMetadata(self.metadata), self.keys, self._clock())

    def root(self) -> bytes:
        """Return the newest root, for new devices."""
        current = CurrentMetadata(self.metadata)
        return (self.metadata / f"{current.root.signed.version}.root.json").read_bytes()


def _bin(current: CurrentMetadata, bins: dict[str, Targets], target: str) -> tuple[str, Targets]:
    name = current.bin_of(target)
    if name not in bins:
        metadata = current.read_bin(name)
        bins[name] = metadata.signed if metadata else new_metadata(Targets)
    return name, bins[name]


def _enter(into: Targets, target: NewTarget, sha256: str, size_bytes: int) -> bool:
    before = into.targets.get(target.name)
    if before is None:
        custom = {"custom": dict(target.custom)} if target.custom else None
        into.targets[target.name] = TargetFile(
            size_bytes, {"sha256": sha256}, target.name, unrecognized_fields=custom
        )
        return True
    if before.hashes != {"sha256": sha256} or (before.custom or {}) != dict(target.custom):
        difference = f"{before.hashes['sha256'][:12]}..., not {sha256[:12]}..."
        if before.hashes == {"sha256": sha256}:
            difference = "the package is the same, but its signed fields or exclusive files differ"
        raise ConflictError(
            f"{target.name}: is already signed with other content ({difference}): a version never "
            "changes, publish a new one"
        )
    return False
