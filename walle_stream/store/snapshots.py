"""Snapshots of partitions in a folder that every machine reaches: state follows its partition.

::

    FOLDER/p-03/
        EPOCH-COMMITS-LINE.json    a snapshot: its files with their digests; written last
        LINE/NAME                  table files of RocksDB, which never change
        LINE/EPOCH-COMMITS-NAME    its other files, and a table whose name was taken
        EPOCH.owner                the last opening, whether or not it left a snapshot
        incarnation                of the first owner's data directory; never changes

A *line* is a database on one machine, through all its openings. RocksDB's lock gives it
one writer at a time, so what a line has is added and removed by one process alone, and a
table file travels once. Whoever takes a partition over on another machine begins a line
of his own, from the newest snapshot: the highest epoch's, of that the one with most commits.
An owner that was cut off and writes on has a lower epoch, which nobody looks at. When it is
the owner again, its own database is worth nothing from the moment that somebody else owned
the partition: what it sent since then was refused, and is no longer in its outbox.

A snapshot may be as old as it likes: the source is read again from its offset, which gives
the same features with the same numbers, and the receiver drops what it has.
"""

import logging
import os
import secrets
import shutil
from contextlib import suppress
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Final

import msgspec

from walle_stream.errors import StoreCorruptedError, StoreError
from walle_stream.ports import SnapshotPoint, SnapshotStore
from walle_stream.store.files import make_folder, place_file, put_file

_log = logging.getLogger(__name__)

_VERSION: Final = 1
_KEPT: Final = 2
_CHUNK_BYTES: Final = 2**20
_TABLE: Final = ".sst"
_LINE: Final = "walle-line"
_INCARNATION: Final = "incarnation"
_OWNER: Final = ".owner"


class _File(msgspec.Struct, frozen=True):
    name: str
    stored: str
    size: int
    digest: str


class _Manifest(msgspec.Struct, frozen=True):
    v: int
    point: SnapshotPoint
    line: str
    files: list[_File]


def line_of(database: Path) -> str:
    """Return the line of a database; a fetched one begins a new line.

    No checkpoint has the file that says so.

    Raises:
        StoreError: It cannot be written.
    """
    path = database / _LINE
    try:
        if not path.exists():
            put_file(path, secrets.token_hex(8).encode())
        return path.read_text()
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error


class FolderSnapshots(SnapshotStore):
    """The snapshots of one partition: the ``SnapshotStore`` that every pipeline can have."""

    def __init__(self, folder: Path, number: int) -> None:
        """Look at nothing yet; every machine reaches the pipeline's folder."""
        self._folder = folder / f"p-{number:02d}"
        self._digests: dict[str, tuple[str, str]] = {}  # of this process: name to (line, digest)

    @property
    def newest(self) -> SnapshotPoint | None:  # noqa: D102 - inherited
        names = self._names()
        return _point(names[-1]) if names else None

    @property
    def last_epoch(self) -> int:  # noqa: D102 - inherited
        return max((int(owner.stem) for owner in self._owners()), default=0)

    def own(self, epoch: int) -> None:  # noqa: D102 - inherited
        try:
            make_folder(self._folder)
            put_file(self._folder / f"{epoch:020d}{_OWNER}", b"")
            for owner in self._owners():
                if int(owner.stem) < epoch:
                    owner.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"{self._folder} cannot be used: {error}: give spec.state.snapshots a folder that "
                "every machine may write"
            ) from error

    def put(self, checkpoint: Path, point: SnapshotPoint, line: str) -> None:  # noqa: D102 - inherited
        try:
            home = self._folder / line
            make_folder(home)
            there = {file.name: file for file in self._last_files(line)}
            files = [self._store(path, home, point, there) for path in sorted(checkpoint.iterdir())]
            manifest = _Manifest(_VERSION, point, line, files)
            name = f"{point.epoch:020d}-{point.commits:020d}-{line}.json"
            put_file(self._folder / name, msgspec.json.encode(manifest))
            self._prune(point, line)
        except OSError as error:
            raise StoreError(
                f"the snapshot of {self._folder} cannot be written: {error}: give "
                "spec.state.snapshots a folder with room that every machine may write"
            ) from error

    def fetch(self, target: Path) -> SnapshotPoint | None:  # noqa: D102 - inherited
        lacking: dict[str, FileNotFoundError] = {}
        while names := self._names():
            # a newer one may have replaced it meanwhile; and of the same epoch, each is right
            epoch = names[-1].partition("-")[0]
            right = [each for each in names if each.startswith(epoch) and each not in lacking]
            if not right:
                raise StoreError(
                    f"the snapshot {names[-1]} of {self._folder} lacks a file "
                    f"({lacking[names[-1]]}): restore the folder of spec.state.snapshots from a "
                    "copy"
                ) from lacking[names[-1]]
            try:
                return self._fetch(self._read(right[-1]), target)
            except FileNotFoundError as error:
                lacking[right[-1]] = error
            except OSError as error:
                raise StoreError(
                    f"the snapshot {right[-1]} of {self._folder} cannot be fetched: {error}"
                ) from error
        return None

    def incarnation(self, own: str) -> str:  # noqa: D102 - inherited
        path = self._folder / _INCARNATION
        try:
            if not path.exists():
                make_folder(self._folder)
                new = path.with_name(f"{_INCARNATION}.{secrets.token_hex(4)}")
                put_file(new, own.encode())
                # one of several that come at once is the first, and nobody sees half of it
                with suppress(FileExistsError):
                    path.hardlink_to(new)
                new.unlink()
            return path.read_text()
        except OSError as error:
            raise StoreError(
                f"{path} cannot be used: {error}: give spec.state.snapshots a folder that every "
                "machine may write"
            ) from error

    # Inside

    def _owners(self) -> list[Path]:
        return [path for path in self._folder.glob(f"*{_OWNER}") if path.stem.isdecimal()]

    def _names(self) -> list[str]:
        try:
            names = sorted(path.name for path in self._folder.glob("*.json"))
        except OSError as error:
            raise StoreError(
                f"snapshots cannot be looked for in {self._folder}: {error}"
            ) from error
        return [name for name in names if _point(name) is not None]

    def _read(self, name: str) -> _Manifest:
        try:
            return msgspec.json.decode((self._folder / name).read_bytes(), type=_Manifest)
        except msgspec.DecodeError as error:
            raise StoreCorruptedError(
                f"{self._folder / name} is damaged ({error}): remove it to use the one before"
            ) from error

    def _last_files(self, line: str) -> list[_File]:
        for name in reversed(self._names()):
            if _line_in(name) == line:
                return self._read(name).files
        return []

    def _store(
        self, path: Path, home: Path, point: SnapshotPoint, there: dict[str, _File]
    ) -> _File:
        is_table = path.suffix == _TABLE
        size = path.stat().st_size
        known = there.get(path.name)
        is_there = known is not None and (home / known.stored).exists()
        if is_table and known is not None and is_there and known.size == size:
            # a number may be given twice after the machine died: look once in each process
            of_line, digest = self._digests.get(path.name, ("", ""))
            if of_line != home.name:
                digest = _digest(path)
                self._digests[path.name] = (home.name, digest)
            if digest == known.digest:
                return known
        stored = path.name
        if not is_table or (home / stored).exists():
            # a snapshot of before may need what is there, until this one is whole
            stored = f"{point.epoch:020d}-{point.commits:020d}-{path.name}"
        digest = _copy(path, home / stored)
        if is_table:
            self._digests[path.name] = (home.name, digest)
        return _File(path.name, stored, size, digest)

    def _fetch(self, manifest: _Manifest, target: Path) -> SnapshotPoint:
        new = target.with_name(f"{target.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for file in manifest.files:
            source = self._folder / manifest.line / file.stored
            if _copy(source, new / file.name) != file.digest:
                raise StoreCorruptedError(
                    f"{source} was altered: its digest is not the snapshot's; remove the newest "
                    f"*.json of {self._folder} to use the one before"
                )
        shutil.rmtree(target, ignore_errors=True)
        place_file(new, target)
        return manifest.point

    def _prune(self, point: SnapshotPoint, line: str) -> None:
        own = [name for name in self._names() if _line_in(name) == line]
        for name in own[:-_KEPT]:
            (self._folder / name).unlink(missing_ok=True)
        needed = {file.stored for name in own[-_KEPT:] for file in self._read(name).files}
        for path in (self._folder / line).iterdir():
            if path.name not in needed:
                path.unlink(missing_ok=True)
        # lines of earlier owners: this one has all that they had. One without a snapshot may
        # be that of a later owner, who has just begun; one with a later snapshot goes on
        first = f"{point.epoch:020d}-{point.commits:020d}"
        before = [name for name in self._names() if name < first and name not in own]
        for name in before:
            (self._folder / name).unlink(missing_ok=True)
        kept = {line, *map(_line_in, self._names())}
        for of_line in {_line_in(name) for name in before} - kept:
            shutil.rmtree(self._folder / of_line, ignore_errors=True)


def _line_in(name: str) -> str:
    return name.rpartition("-")[2].removesuffix(".json")


def _point(name: str) -> SnapshotPoint | None:
    epoch, _, rest = name.partition("-")
    commits = rest.partition("-")[0]
    if not (epoch.isdecimal() and commits.isdecimal()):
        return None
    return SnapshotPoint(int(epoch), int(commits))


def _copy(source: Path, target: Path) -> str:
    new = target.with_name(f"{target.name}.part")
    digest = _new_digest()
    with source.open("rb") as opened, new.open("wb") as file:
        while part := opened.read(_CHUNK_BYTES):
            digest.update(part)
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    place_file(new, target)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, _new_digest).hexdigest()


def _new_digest() -> blake2b:
    return blake2b(digest_size=16)
