"""The files of a version on a device: pulled, verified, stored.

The device does not trust the release service or a file server about files. The signed metadata
must name each file, with its length and hash, for this task and version. An exclusive file must
belong to this device or its user. The previous version stays until all files of the new one are
present.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import msgspec
from tuf.api.exceptions import DownloadHTTPError
from tuf.api.metadata import TargetFile

from walle_deploy.device.files_blobs import KEPT_MS, BlobStore
from walle_deploy.device.files_http import HttpSource, TransferLimits
from walle_deploy.device.files_installed import InstalledVersions, named_files
from walle_deploy.device.files_metadata import VerifiedMetadata
from walle_deploy.distribution.signed_urls import PROOF_HEADER, prove
from walle_deploy.model.owners import owner_of_user
from walle_deploy.model.pushes import PushedFile, PushedTask
from walle_deploy.trust.layout import blob_path, remove_parts
from walle_deploy.trust.publishing import TREE_ROOT
from walle_deploy.trust.tree import NODE_MAX_BYTES, Entry, find_in_tree
from walle_stream.clock import wall_ms
from walle_stream.errors import IntegrityError, RefNotFoundError, ServiceUnreachableError


class DeviceIdentity(msgspec.Struct, frozen=True):
    """A device's identity, which decides on its exclusive files."""

    device: str
    user: str = ""
    """Empty if no user is signed in."""
    secret: str = ""
    """Secret from the enrolment. Without it, the device gets no version with exclusive files."""


class VerifiedFiles:
    """A folder of verified files for one repository, shared by all devices of a machine.

    Any thread may call its methods. They block on the network and on the disk.
    """

    def __init__(self, folder: Path, root: bytes, limits: TransferLimits | None = None) -> None:
        """Make the folder, which other processes may share; ``root`` came with the devices.

        Raises:
            IntegrityError: The root is not valid.
        """
        self.folder = folder
        self._http = HttpSource(limits)
        self._metadata = VerifiedMetadata(folder / "metadata", root, self._http)
        self.blobs = BlobStore(folder / "blobs")

    def pull(
        self,
        task: PushedTask,
        metadata_url: str,
        identity: DeviceIdentity,
        service_ms: int | None = None,
    ) -> Mapping[str, Path]:
        """Get and verify all files of a version; files already present are not fetched again.

        ``service_ms`` is the service's clock in epoch milliseconds, None if unknown.

        Returns:
            Paths by resource, with the package under the empty name. Read them through
            ``blobs.read`` or ``read_package``, which verify the bytes once more.

        Raises:
            IntegrityError: A file, or the metadata, is not what was signed.
            RefNotFoundError: The version has files of this device alone, and the device has no
                secret; no server was asked.
            ServiceUnreachableError: A server refuses, or answers too slowly or not at all.
            StoreFullError: The disk is full.
        """
        if not task.files or task.files[0].audience != "shared" or task.files[0].resource:
            raise IntegrityError(f"{task.task}@{task.version}: was pushed without its package")
        for file in task.files:
            if file.audience == "exclusive":
                _check_owner(task, file, identity)
        metadata_url = metadata_url if metadata_url.endswith("/") else f"{metadata_url}/"
        shared = [file for file in task.files if file.audience == "shared"]
        signed = self._metadata.look_up(metadata_url, [file.target for file in shared], service_ms)
        for file in shared:
            _compare(task, file, signed[file.target])
        root = (signed[task.files[0].target].custom or {}).get(TREE_ROOT)
        for file in task.files:
            if file.audience == "exclusive":
                self._check_exclusive(file, metadata_url, root)
        # fetch files only after all checks passed
        return {file.resource: self._get(file, identity) for file in task.files}

    def installed(self, device: str) -> InstalledVersions:
        """Return the record of a device's versions.

        Raises:
            IntegrityError: The record cannot be read.
        """
        return InstalledVersions(self.folder / "devices", device)

    def collect(self, kept_ms: int = KEPT_MS) -> int:
        """Remove files without a record that were not pulled lately; return their number.

        Raises:
            IntegrityError: A record cannot be read; nothing was removed.
        """
        records = self.folder / "devices"
        remove_parts(records, wall_ms() - kept_ms)
        return self.blobs.collect(named_files(records), kept_ms)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def _check_exclusive(self, file: PushedFile, metadata_url: str, root: object) -> None:
        entry: Entry | None = None
        if isinstance(root, str) and root:

            def read(sha256: str) -> bytes:
                url = f"{metadata_url}tree/{blob_path(sha256)}"
                return self._http.get(url, NODE_MAX_BYTES)

            entry = find_in_tree(file.target, root, read)
        if entry != (file.sha256, file.size_bytes):
            raise IntegrityError(f"{file.target}: {_differs(file, entry)}")

    def _get(self, file: PushedFile, identity: DeviceIdentity) -> Path:
        def fill(into: BinaryIO, have_bytes: int) -> None:
            self._http.fill(into, have_bytes, file.url, file.size_bytes, headers)

        headers = {"Accept-Encoding": "identity"}
        if file.audience == "exclusive" and identity.secret:
            headers[PROOF_HEADER] = prove(identity.secret, file.url)
        try:
            return self.blobs.store(file.sha256, file.size_bytes, fill)
        except DownloadHTTPError as error:
            raise ServiceUnreachableError(f"{file.target}: {error}") from error


def _check_owner(task: PushedTask, file: PushedFile, identity: DeviceIdentity) -> None:
    owners = [identity.device]
    if identity.user:
        owners.append(owner_of_user(identity.user))
    base = f"{task.task}/{task.version}/for"
    if file.target not in {f"{base}/{quote(o, safe='')}/{file.resource}" for o in owners}:
        raise IntegrityError(
            f"{file.target}: does not belong to {identity.device!r}, {task.task}@{task.version} "
            f"and {file.resource!r}: it was pushed to the wrong device"
        )
    if not identity.secret:
        raise RefNotFoundError(
            f"{file.target}: belongs to {identity.device!r} or its user alone, but this device has "
            f"no secret here: enrol it (walle repository enrol REPO {identity.device} --json) and "
            "pass the output with walle fleet --secrets FILE"
        )


def _compare(task: PushedTask, file: PushedFile, signed: TargetFile) -> None:
    entry = (signed.hashes.get("sha256", ""), signed.length)
    if entry != (file.sha256, file.size_bytes):
        raise IntegrityError(f"{file.target}: {_differs(file, entry)}")
    custom = signed.custom if isinstance(signed.custom, dict) else {}
    of = (custom.get("task"), custom.get("version"))
    if of != (task.task, task.version):
        raise IntegrityError(
            f"{file.target}: was signed for {of[0]}@{of[1]}, and pushed as "
            f"{task.task}@{task.version}: it was not used"
        )


def _differs(file: PushedFile, entry: Entry | None) -> str:
    signed = f"{entry[0][:12]}... of {entry[1]} bytes is" if entry else "nothing is"
    return (
        f"{file.sha256[:12]}... of {file.size_bytes} bytes was pushed, {signed} signed under this "
        "name: it was not used"
    )
