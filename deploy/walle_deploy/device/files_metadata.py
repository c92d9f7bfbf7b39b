"""Signed metadata on a device: refreshed, verified, and never older than what was seen.

python-tuf's client does the work of The Update Framework; here are its place on the disk, the
time by which expiry is judged, and errors in our words.

The time by which expiry is judged is the latest of what this device's clock shows, what the
release service says, and when the newest timestamp that was verified had been signed. A clock that
is behind is put right by the others; nobody turns one back, as whoever answers for the service and
for the files could show an old state then, with versions that were retired. So a device whose clock
is ahead by more than the timestamp is valid for installs nothing, and says why.
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
"""For so long a refresh serves further pulls of the same process."""

_NO_BIN: Final = "not part of snapshot"


class VerifiedMetadata:
    """The metadata of one repository in one folder; shared by threads and by processes."""

    def __init__(self, folder: Path, root: bytes, http: HttpSource) -> None:
        """Take a root of the repository, of any version: where all trust begins.

        Raises:
            IntegrityError: The root is none.
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
        """Return what is signed of files; may block on the network.

        ``service_ms`` is the time by the release service; None when it did not say.

        Raises:
            IntegrityError: The metadata is not what was signed, old or expired, or it does not
                name a file.
            ServiceUnreachableError: The server does not answer.
            StoreFullError: The disk is full; what was known before is still known.
        """
        wanted = list(names)
        with self._lock, _explained(url), locked(self._folder):
            last = self._last
            if last and last[0] == url and monotonic_ms() - last[1] < FRESH_MS:
                # another process may have gone on: what does not fit any more is asked for anew
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
                # a newer root came: whoever signed that time had stolen a key that is replaced
                with suppress(ExpiredMetadataError):
                    return self._refreshed_at(url, service_ms, self._floor_ms())
            raise IntegrityError(
                f"{url}: {error}, judged by {datetime.fromtimestamp(now_ms / 1_000, UTC):%F %T} "
                "UTC: nobody signed it anew (walle repository refresh), somebody serves an old "
                "state, or this device's clock is wrong"
            ) from error

    def _refreshed_at(self, url: str, service_ms: int | None, floor_ms: int) -> Updater:
        updater = Updater(str(self._folder), url, fetcher=self._fetcher, bootstrap=self._root)
        now_ms = trusted_time_ms(wall_ms(), service_ms, floor_ms)
        # python-tuf has no argument for it; a test fails where this attribute goes
        updater._trusted_set.reference_time = datetime.fromtimestamp(now_ms / 1_000, UTC)  # noqa: SLF001
        updater.refresh()
        return updater

    def _floor_ms(self) -> int:
        # a timestamp that a stolen and replaced key signed must not set the time for ever; that
        # says the newest root that was verified: root.json is the first one again and again
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
        # one key signs all bins: a server may have sent another bin of the same version, which
        # names other files alone; kept, it would hide this one after the server was mended
        self._last = None
        for path in self._folder.glob(f"{BINS}-*.json"):
            path.unlink()

    def _sync(self) -> None:
        # python-tuf renames without it: after a power cut an older state would be believed
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
    """Refuse a root that no metadata could be verified with.

    Raises:
        IntegrityError: It is no root metadata, or not signed by itself.
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
            f"{what}: is no root metadata of a repository: {problem}: give "
            "REPO/public/metadata/1.root.json, which walle repository init made"
        )


def trusted_time_ms(clock_ms: int, service_ms: int | None, floor_ms: int) -> int:
    """Return the time by which expiry is judged, see the top of this file.

    ``service_ms`` is None where the service did not say, ``floor_ms`` 0 without a timestamp.
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
            targets[name] = None  # bins are made when their first target comes
    return targets


@contextmanager
def _explained(url: str) -> Iterator[None]:
    try:
        with full_disk(url):
            yield
    except DownloadLengthMismatchError as error:
        raise IntegrityError(f"{url}: sends more than metadata may have: {error}") from error
    except (SlowRetrievalError, DownloadHTTPError, DownloadError) as error:
        raise ServiceUnreachableError(f"{url}: {error}: {error.__cause__ or ''}") from error
    except RepositoryError as error:
        raise IntegrityError(
            f"{url}: is not what was signed, or older than what was seen: {error}; nothing of it "
            "was used"
        ) from error
