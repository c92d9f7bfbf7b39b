"""Signed metadata on a device: refreshed, verified, and never older than before.

python-tuf's client implements The Update Framework. This module adds the folder on the disk, the
time for expiry, and our error messages.

Expiry is judged by the latest of three times: this device's clock, the release service's clock, and
the signing time of the newest verified timestamp. So the other two correct a clock that is behind.
No source may set the time back: a server for both requests and files could then show an old state
with retired versions. A device whose clock is ahead by more than a timestamp's validity therefore
installs nothing, and says why.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final

from tuf.api.exceptions import (
    DownloadError,
    DownloadHTTPError,
    DownloadLengthMismatchError,
    ExpiredMetadataError,
    RepositoryError,
    SlowRetrievalError,
)
from tuf.api.metadata import Metadata, Root, TargetFile, Timestamp
from tuf.ngclient import FetcherInterface, Updater

from walle_deploy.device.files_http import HttpSource
from walle_deploy.outbound.bounded import one_line
from walle_deploy.trust.layout import full_disk, locked
from walle_deploy.trust.roles import BINS, SIGNED_AT
from walle_stream.clock import monotonic_ms, wall_ms
from walle_stream.errors import IntegrityError, ServiceUnreachableError
from walle_stream.store.files import flush_file, make_folder, sync_folder

FRESH_MS: Final = 30_000
"""Time for which further pulls of the same process reuse a refresh."""

_NO_BIN: Final = "not part of snapshot"


class VerifiedMetadata:
    """The metadata of one repository in one folder, shared by threads and processes."""

    def __init__(self, folder: Path, root: bytes, http: HttpSource) -> None:
        """Take a root of the repository, of any version. All trust begins there.

        Raises:
            IntegrityError: The root is not valid.
        """
        check_root(root)
        make_folder(folder)
        self._folder = folder
        self._root = root
        self._fetcher = _Fetcher(http)
        self._lock = Lock()
        self._last: tuple[str, float, Updater] | None = None

    def look_up(
        self, url: str, names: Iterable[str], service_ms: int | None = None
    ) -> dict[str, TargetFile]:
        """Return the signed entries of files; may block on the network.

        ``service_ms`` is the release service's clock, None if unknown.

        Raises:
            IntegrityError: The metadata does not match its signatures, is old or expired, or does
                not name a file.
            ServiceUnreachableError: The server does not answer.
            StoreFullError: The disk is full; the previous metadata is still there.
        """
        wanted = list(names)
        with self._lock, _explained(url), locked(self._folder):
            last = self._last
            if last and last[0] == url and monotonic_ms() - last[1] < FRESH_MS:
                # another process may have refreshed the folder: then ask again
                with suppress(RepositoryError, DownloadError, ServiceUnreachableError):
                    targets = _find(last[2], wanted)
                    if all(targets.values()):
                        return {name: target for name, target in targets.items() if target}
            self._last = None
            updater = self._refreshed(url, service_ms)
            self._last = (url, monotonic_ms(), updater)
            targets = _find(updater, wanted)
            self._sync()
            if None in targets.values():
                self._forget_bins()
        for name, target in targets.items():
            if target is None:
                raise IntegrityError(
                    f"{name}: no signed metadata names it (any more): it is not installed"
                )
        return {name: target for name, target in targets.items() if target}

    def _refreshed(self, url: str, service_ms: int | None) -> Updater:
        floor_ms = self._floor_ms()
        try:
            return self._refreshed_at(url, service_ms, floor_ms)
        except ExpiredMetadataError as error:
            now_ms = trusted_time_ms(wall_ms(), service_ms, floor_ms)
            if self._floor_ms() < floor_ms:
                # a newer root came: the time was signed with a stolen key that is replaced now
                with suppress(ExpiredMetadataError):
                    return self._refreshed_at(url, service_ms, self._floor_ms())
            raise IntegrityError(
                f"{url}: {error}, judged by {datetime.fromtimestamp(now_ms / 1_000, UTC):%F %T} "
                "UTC: the metadata was not signed again (walle repository refresh), a server "
                "sends an old state, or this device's clock is wrong"
            ) from error

    def _refreshed_at(self, url: str, service_ms: int | None, floor_ms: int) -> Updater:
        updater = Updater(str(self._folder), url, fetcher=self._fetcher, bootstrap=self._root)
        now_ms = trusted_time_ms(wall_ms(), service_ms, floor_ms)
        # python-tuf has no argument for the time; a test fails if this attribute disappears
        updater._trusted_set.reference_time = datetime.fromtimestamp(now_ms / 1_000, UTC)  # noqa: SLF001
        updater.refresh()
        return updater

    def _floor_ms(self) -> int:
        # A timestamp signed with a stolen and replaced key must not set the time forever. The
        # newest verified root decides; root.json itself is reset to the first root each time.
        roots = self._folder.glob("root_history/*.root.json")
        try:
            newest = max(roots, key=lambda path: int(path.name.partition(".")[0]))
            root = Metadata[Root].from_bytes(newest.read_bytes())
            known = Metadata[Timestamp].from_bytes((self._folder / "timestamp.json").read_bytes())
            root.signed.verify_delegate("timestamp", known.signed_bytes, known.signatures)
        except (OSError, ValueError, RepositoryError):
            return 0
        signed_ms = known.signed.unrecognized_fields.get(SIGNED_AT)
        return signed_ms if isinstance(signed_ms, int) else 0

    def _forget_bins(self) -> None:
        # One key signs all bins, so a server may have sent another bin of the same version, with
        # other files. If kept, that bin would hide the right one even after the server is repaired.
        self._last = None
        for path in self._folder.glob(f"{BINS}-*.json"):
            path.unlink()

    def _sync(self) -> None:
        # python-tuf does not sync its renames: a power cut could bring an older state back
        files = list(self._folder.rglob("*.json"))
        for path in files:
            flush_file(path)
        for folder in {self._folder, *(path.parent for path in files)}:
            sync_folder(folder)


class _Fetcher(FetcherInterface):
    def __init__(self, http: HttpSource) -> None:
        self._http = http

    def _fetch(self, url: str) -> Iterator[bytes]:
        parts = self._http.chunks(url, 8 * 1024 * 1024, {"Accept-Encoding": "gzip"})
        return (chunk for _, chunk in parts)


def check_root(root: bytes, what: str = "the root that was given") -> None:
    """Refuse a root that cannot verify any metadata.

    Raises:
        IntegrityError: The bytes are not root metadata, or not signed by themselves.
    """
    problem = ""
    try:
        metadata = Metadata[Root].from_bytes(root)
        if isinstance(metadata.signed, Root):
            metadata.signed.verify_delegate(Root.type, metadata.signed_bytes, metadata.signatures)
        else:
            problem = f"it is of the type {metadata.signed.type!r}"
    except (RepositoryError, ValueError) as error:
        problem = one_line(str(error))
    if problem:
        raise IntegrityError(
            f"{what}: is not root metadata of a repository: {problem}: pass "
            "REPO/public/metadata/1.root.json, which walle repository init made"
        )


def trusted_time_ms(clock_ms: int, service_ms: int | None, floor_ms: int) -> int:
    """Return the time for expiry, see the top of this file.

    ``service_ms`` is None if unknown; ``floor_ms`` is 0 without a timestamp.
    """
    return max(clock_ms, service_ms or 0, floor_ms)


def _find(updater: Updater, names: list[str]) -> dict[str, TargetFile | None]:
    targets: dict[str, TargetFile | None] = {}
    for name in names:
        try:
            targets[name] = updater.get_targetinfo(name)
        except RepositoryError as error:
            if _NO_BIN not in str(error):
                raise
            targets[name] = None  # a bin exists only after its first target
    return targets


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        with full_disk(url):
            yield
    except DownloadLengthMismatchError as error:
        raise IntegrityError(
            f"{url}: the server sends more than metadata may have: {error}"
        ) from error
    except (SlowRetrievalError, DownloadHTTPError, DownloadError) as error:
        raise ServiceUnreachableError(f"{url}: {error}: {error.__cause__ or ''}") from error
    except RepositoryError as error:
        raise IntegrityError(
            f"{url}: is not what was signed, or older than what was seen: {error}; it was not used"
        ) from error
