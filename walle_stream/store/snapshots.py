"""Snapshots of partitions in an object store, with which state follows its partition.

::

    PREFIX/p-03/
        EPOCH.owner               a claim: an opening of the partition with this epoch
        EPOCH/COMMITS-TOKEN-NAME  files of a database, below the opening that uploaded them
        EPOCH-COMMITS.json        a manifest: a snapshot's files with digests; written last
        incarnation               that of the first owner's data directory; never changes

A file is identified by name, size and digest. Files of the last manifest are not uploaded again,
even if another owner uploaded them. A manifest is created, never replaced.

A former owner that was cut off and continues to write does no harm:

1. An opening claims an epoch by creating its name. Of several openings one succeeds, and only if no
   higher epoch is claimed. Then it lists, then it fetches: *claim, list, fetch*.
2. A snapshot is abandoned if a higher claim is listed after its copy was made. The contents of
   every manifest were therefore committed before a later owner sent anything, and each manifest is
   a valid start. The source is read again from its offset, which gives the same features with the
   same numbers, and the receiver drops those that it has. The latest manifest of the highest epoch
   is taken.
3. An owner removes old files after writing its manifest, and only if its listing has no higher
   claim. It keeps the newest ``keep`` manifests, two or more, with their files. Suppose that
   another owner claims meanwhile. It lists later, so the newest manifest that it sees is the one
   just written, or a later one, none of whose files was removed. The next removal sees its claim.
   The new owner may reuse the files that it fetched: none of them was garbage.
4. A former owner that still writes does so below a lower epoch. Its manifest is not the newest, and
   is removed with the next garbage. It may then lack files, and is skipped, as a damaged one is.

The argument needs a store that lists a new name at once, and refuses to create an existing name:
S3, Google, Azure and local file systems do so.
"""

import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b, file_digest
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import uuid4

import msgspec

from walle_stream.clock import monotonic_ms
from walle_stream.errors import (
    EpochTakenError,
    FormatVersionError,
    StoreCorruptedError,
    StoreError,
    StoreUnreachableError,
)
from walle_stream.ports import ObjectStore
from walle_stream.store.files import place_file, put_file, refusal, sync_folder

_log = logging.getLogger(__name__)

KEPT: Final = 2
"""Minimum number of manifests to keep; see above."""

ANY_EPOCH: Final = range(1, 1 << 63)
"""Epochs without placement: the last claimant is the owner."""

_VERSION: Final = 2
_AT_ONCE: Final = 4  # concurrent transfers
_TABLE: Final = ".sst"
_NAMES: Final = re.compile(r"(\d{20})(?:(\.owner)|-(\d{20})\.json|/.*)")
_PATIENCE_MS: Final = 60_000.0
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 8.0
_TELL_MS: Final = 3_000.0


class SnapshotPoint(msgspec.Struct, frozen=True, order=True):
    """Progress of a partition's database: a later point has more of its history."""

    epoch: int
    """Epoch of the opening that wrote it."""
    commits: int


class _File(msgspec.Struct, frozen=True):
    name: str
    size: int
    digest: str
    stored: str


class _Versioned(msgspec.Struct):
    v: int


class _Manifest(msgspec.Struct, frozen=True):
    v: int
    point: SnapshotPoint
    files: list[_File]


class _Listed(msgspec.Struct, frozen=True):
    last_epoch: int
    points: list[SnapshotPoint]
    sizes: Mapping[str, int]
    epochs: Mapping[str, int]


class PartitionSnapshots:
    """The snapshots of one partition. One thread at a time; every method blocks.

    Every method raises ``StoreError`` if the store cannot be used. All methods but ``put`` first
    retry an unreachable store for a minute.
    """

    def __init__(
        self,
        objects: ObjectStore,
        folder: str,
        number: int,
        keep: int = KEPT,
        near: Path | None = None,
    ) -> None:
        """Keep the parameters without any request.

        Args:
            objects: The store.
            folder: Folder of a pipeline's partitions.
            number: The partition's number.
            keep: Number of manifests to keep.
            near: Folder of a warm copy, see ``warm``; need not exist.
        """
        self._objects, self._folder, self._keep = objects, f"{folder}/p-{number:02d}", keep
        self._near = near
        self._digests: dict[str, str] = {}  # of this opening's tables, which never change
        self._last: _Manifest | None = None  # last manifest that this opening fetched or put

    @property
    def is_fetched(self) -> bool:
        """Whether a fetch followed the last claim."""
        return self._last is not None

    @property
    def newest(self) -> SnapshotPoint | None:
        """The latest snapshot of the highest epoch, None without snapshots."""
        points = self._patiently(self._list).points
        return points[-1] if points else None

    @property
    def last_epoch(self) -> int:
        """Epoch of the last opening by any owner, 0 without one."""
        return self._patiently(self._list).last_epoch

    @property
    def last_claim(self) -> bytes:
        """Token in the last owner's claim, see ``own``; empty without one."""
        try:
            return self._patiently(self._content, f"{self.last_epoch:020d}.owner")
        except FileNotFoundError:
            return b""

    def own(
        self,
        epochs: range = ANY_EPOCH,
        above: int = 0,
        note: Callable[[bytes], object] = lambda _: None,
    ) -> int:
        """Claim the partition, before fetching it or sending anything with the epoch.

        Args:
            epochs: Allowed epochs; the first one above all existing ones is taken.
            above: An epoch that was used, perhaps without a claim.
            note: Gets the claim before it is made.

        Returns:
            The epoch.

        Raises:
            EpochTakenError: None of the epochs is above all existing ones.
        """
        while True:
            last = max(self.last_epoch, above)
            epoch, token = max(last + 1, epochs.start), uuid4().hex.encode()
            self._expect_last(last, epochs[-1])
            note(token)
            # a repeated request may be refused because the first one succeeded
            is_own = self._patiently(self._create, f"{epoch:020d}.owner", token) == token
            if is_own and self.last_epoch == epoch:
                self._digests, self._last = {}, None
                return epoch
            above = epoch

    def put(self, checkpoint: Path, point: SnapshotPoint) -> bool:
        """Add a snapshot, then remove files that are no longer needed.

        Args:
            checkpoint: A folder of files that do not change; it stays.
            point: Progress of the database at the copy, with the claimed epoch.

        Returns:
            Whether every later owner finds it: no higher claim existed after it was written.

        Raises:
            EpochTakenError: The partition has another owner.
            StoreError: The snapshot is incomplete; existing snapshots stay.
        """
        digests = self._digests  # another opening may begin meanwhile
        listed = self._list()
        self._expect_last(listed.last_epoch, point.epoch + 1)
        last = [self._last] if self._last else self._kept(listed, 1)
        there = {
            (file.name, file.size, file.digest): file
            for each in last
            for file in each.files
            if listed.sizes.get(file.stored) == file.size
        }
        folder = f"{point.epoch:020d}/{point.commits:020d}-{uuid4().hex[:8]}"
        files, new = [], []
        try:
            for path in sorted(checkpoint.iterdir()):
                told = path.name, path.stat().st_size, _digest(path, digests)
                if told not in there:
                    new.append(_File(*told, f"{folder}-{path.name}"))
                files.append(there.get(told) or new[-1])
        except OSError as error:
            raise StoreError(f"{checkpoint} cannot be read: {error}") from error
        _at_once(
            lambda f: self._objects.put(f"{self._folder}/{f.stored}", checkpoint / f.name), new
        )
        content = msgspec.json.encode(_Manifest(_VERSION, point, files))
        made = self._decoded(self._create(_name(point), content), point)
        if digests is self._digests:
            self._last = made
        return self._prune(point.epoch)

    def fetch(self, target: Path) -> SnapshotPoint | None:
        """Make a database from the newest complete snapshot, and return its point.

        An existing database at the target is replaced after the download. None without snapshots.

        Raises:
            StoreCorruptedError: No snapshot is complete.
        """
        failed: dict[SnapshotPoint, Exception] = {}
        # a newer snapshot may replace one meanwhile
        while left := [p for p in self._patiently(self._list).points if p not in failed]:
            try:
                manifest = self._patiently(self._read, left[-1])
                self._download(manifest, target)
            except (FileNotFoundError, StoreCorruptedError) as error:
                _log.warning("%s/%s: %s; an older snapshot is used", self, _name(left[-1]), error)
                failed[left[-1]] = error
            else:
                tables = (file for file in manifest.files if file.name.endswith(_TABLE))
                self._digests = {file.name: file.digest for file in tables}
                self._last = manifest
                return manifest.point
        if failed:
            point = max(failed)
            raise StoreCorruptedError(
                f"no snapshot in {self} is complete, not even the newest {_name(point)} "
                f"({failed[point]}): restore them from a copy, or remove them all to start empty"
            ) from failed[point]
        return None

    def warm(self) -> None:
        """Fetch the missing files of the newest snapshot to the warm copy, and drop others.

        Files are named by their digests. Nothing is claimed; an opening of the partition here then
        has little to fetch.

        Raises:
            StoreError: Files cannot be fetched or written; fetched files are kept.
        """
        points = self._list().points
        if self._near is not None and points:
            self._renew(self._near, points[-1])

    def forget_warm(self) -> None:
        """Remove the warm copy: the partition is here, or will not come."""
        if self._near is not None:
            shutil.rmtree(self._near, ignore_errors=True)

    def incarnation(self, own: str) -> str:
        """Return the incarnation of the partition's devices, which its first owner set.

        An owner that dies before its first snapshot leaves only the frames that it sent. The next
        owner starts empty and makes the same features with the same numbers, which must not count
        as those of other devices.

        Args:
            own: Incarnation of this machine's data directory; stored if there is none yet.
        """
        return self._patiently(self._create, "incarnation", own.encode()).decode()

    def __str__(self) -> str:
        """Return the place of the snapshots."""
        return f"{self._objects.place}/{self._folder}"

    # Inside

    def _list(self) -> _Listed:
        sizes = {
            name.removeprefix(f"{self._folder}/"): size
            for name, size in self._objects.listed(self._folder).items()
        }
        found = {name: match for name in sizes if (match := _NAMES.fullmatch(name))}
        if any(name.endswith(".json") for name in sizes.keys() - found.keys()):
            raise self._of_another_version()
        points = [SnapshotPoint(int(m[1]), int(m[3])) for m in found.values() if m[3]]
        claims = [int(match[1]) for match in found.values() if match[2] or match[3]]
        epochs = {name: int(match[1]) for name, match in found.items()}
        return _Listed(max(claims, default=0), sorted(points), sizes, epochs)

    def _create(self, name: str, content: bytes) -> bytes:
        """Create an object, and return the present content of the name."""
        if self._objects.create(f"{self._folder}/{name}", content):
            return content
        try:
            return self._content(name)
        except FileNotFoundError:
            return b""  # a later owner removed it

    def _content(self, name: str) -> bytes:
        return b"".join(self._objects.get(f"{self._folder}/{name}"))

    def _read(self, point: SnapshotPoint) -> _Manifest:
        return self._decoded(self._content(_name(point)), point)

    def _decoded(self, content: bytes, point: SnapshotPoint) -> _Manifest:
        try:
            if msgspec.json.decode(content, type=_Versioned).v != _VERSION:
                raise self._of_another_version()
            manifest = msgspec.json.decode(content, type=_Manifest)
        except msgspec.DecodeError as error:
            raise StoreCorruptedError(f"{self}/{_name(point)} is damaged ({error})") from error
        if manifest.point != point or any(
            Path(each.name).name != each.name for each in manifest.files
        ):
            raise StoreCorruptedError(
                f"{self}/{_name(point)} is damaged: it belongs to another database"
            )
        return manifest

    def _kept(self, listed: _Listed, count: int) -> list[_Manifest]:
        kept: list[_Manifest] = []
        for point in reversed(listed.points):
            if len(kept) == count:
                break
            try:
                is_last = self._last is not None and point == self._last.point
                kept.append(self._last if self._last and is_last else self._read(point))
            except FileNotFoundError:
                continue  # a later owner removed it
            except StoreCorruptedError as error:
                _log.warning("%s", error)
        return kept

    def _prune(self, epoch: int) -> bool:
        listed = self._list()
        if listed.last_epoch > epoch:
            return False
        kept = self._kept(listed, self._keep)
        needed = {file.stored for each in kept for file in each.files}
        needed |= {f"{epoch:020d}.owner", *(_name(each.point) for each in kept)}
        others = listed.epochs.keys() - needed
        garbage = [name for name in others if listed.epochs[name] <= epoch]
        self._objects.delete([f"{self._folder}/{name}" for name in garbage])
        return True

    def _download(self, manifest: _Manifest, target: Path) -> None:
        new = target.with_name(f"{target.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        progress = _Progress(str(self), sum(file.size for file in manifest.files))
        try:
            new.mkdir(parents=True)
            _at_once(lambda f: self._patiently(self._fetch, f, new, progress), manifest.files)
            sync_folder(new)
            shutil.rmtree(target, ignore_errors=True)
            place_file(new, target)
        except OSError as error:
            if isinstance(error, (StoreError, FileNotFoundError)):
                raise
            raise refusal(error, f"{new} cannot be written: {error}") from error

    def _fetch(self, file: _File, folder: Path, progress: "_Progress") -> None:
        target = folder / file.name
        near = None if self._near is None else self._near / file.digest
        if near is not None and near.exists() and _digest(near, {}) == file.digest:
            if file.name.endswith(_TABLE):
                os.link(near, target)  # tables never change, so both names may share one file
            else:
                put_file(target, near.read_bytes())
            progress.add(file.size)
        else:
            self._get(file, target, progress)

    def _get(self, file: _File, target: Path, progress: "_Progress") -> None:
        digest = _new_digest()
        with target.open("wb") as opened:
            for part in self._objects.get(f"{self._folder}/{file.stored}"):
                digest.update(part)
                opened.write(part)
                progress.add(len(part))
            opened.flush()
            os.fsync(opened.fileno())
        if digest.hexdigest() != file.digest:
            raise StoreCorruptedError(f"{self}/{file.stored} was changed: its digest differs")

    def _renew(self, near: Path, newest: SnapshotPoint) -> None:
        try:
            near.mkdir(parents=True, exist_ok=True)
            files = {file.digest: file for file in self._read(newest).files}
            there = {path.name for path in near.iterdir()}
            new = [files[digest] for digest in files.keys() - there]
            progress = _Progress(str(self), sum(file.size for file in new))
            for file in new:
                part = near / f"{file.digest}.part"
                self._get(file, part, progress)
                part.rename(near / file.digest)
            for name in there - files.keys():
                (near / name).unlink(missing_ok=True)
        except FileNotFoundError:
            return  # a newer snapshot replaced it meanwhile
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise refusal(error, f"{near} cannot be written: {error}") from error

    def _patiently[**P, T](self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        began_ms, wait_s = monotonic_ms(), _FIRST_WAIT_S
        while True:
            try:
                return call(*args, **kwargs)
            except StoreUnreachableError as error:
                if monotonic_ms() - began_ms > _PATIENCE_MS:
                    raise
                if wait_s == _FIRST_WAIT_S:
                    _log.warning("%s: retrying", error)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _expect_last(self, last: int, next_one: int) -> None:
        if last >= next_one:
            raise EpochTakenError(f"{self} has another owner, its epoch is {last}", last)

    def _of_another_version(self) -> FormatVersionError:
        return FormatVersionError(
            f"{self} has snapshots of another version of walle_stream: give another folder or "
            "prefix, or remove them"
        )


class _Progress:
    # of one restore; any thread
    def __init__(self, place: str, size: int) -> None:
        self._place, self._size, self._done = place, size, 0
        self._told_ms, self._lock = monotonic_ms(), Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            if monotonic_ms() - self._told_ms > _TELL_MS:
                self._told_ms, sizes = monotonic_ms(), (self._done >> 20, self._size >> 20)
                _log.warning("%s: %d of %d MB are downloaded", self._place, *sizes)


def _digest(path: Path, digests: dict[str, str]) -> str:
    digest = digests.get(path.name)
    if digest is None:
        with path.open("rb") as file:
            digest = file_digest(file, _new_digest).hexdigest()
        if path.suffix == _TABLE:
            digests[path.name] = digest
    return digest


def _at_once(work: Callable[[_File], None], files: Sequence[_File]) -> None:
    # the largest files first; the first failure ends the rest
    with ThreadPoolExecutor(_AT_ONCE, "walle-snapshot") as threads:
        list(threads.map(work, sorted(files, key=lambda file: -file.size)))


def _name(point: SnapshotPoint) -> str:
    return f"{point.epoch:020d}-{point.commits:020d}.json"


def _new_digest() -> blake2b:
    return blake2b(digest_size=16)
