"""The data directory: one owner, one format, one source.

::

    meta.json       settings fixed at its creation; written atomically
    LOCK            the owner's process id; locked by the kernel
    in-hand         a byte per partition: whether it is in a VM's call
    partitions/NN   a database per partition; partitions-COUNT after their number has grown
    inbox/          messages that other processes send, until the partitions have them
    packages/       packages of tasks installed while a host ran, by their SHA-256
    status.json     status of the last run, for people; replaced atomically

``meta.json`` comes before every database. A directory whose creation was killed is therefore empty;
it is recognised and made again. Databases without ``meta.json`` are damage. The lock goes with its
process, however the process dies, except that a child made by a bare ``os.fork`` shares it. Readers
take no lock.
"""

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from walle_stream import __version__
from walle_stream.clock import monotonic_ms
from walle_stream.errors import (
    FormatVersionError,
    StoreCorruptedError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreMissingError,
)
from walle_stream.store.files import FULL_DISK, make_folder, put_file, sync_folder
from walle_stream.store.in_hand import InHand
from walle_stream.store.locks import is_file, try_lock, wait_for_locks
from walle_stream.store.replayed import REPLAYED_NAME

DATA_DIR_VERSION: Final = 3
_QUARANTINE: Final = "quarantine.jsonl"
_IN_HAND: Final = "in-hand"
_STATUS: Final = "status.json"
_COMPLETE: Final = "complete"
"""Empty file, made when every database exists."""

_INBOX: Final = "inbox"
_HALF_MADE: Final = frozenset({"LOCK", "meta.json.new", _COMPLETE, _INBOX})
_PACKAGES: Final = "packages"
_PARTITIONS: Final = "partitions"
_MADE: Final = frozenset({_PARTITIONS, _PACKAGES, _QUARANTINE, _IN_HAND, _STATUS, REPLAYED_NAME})
_RETRY_S: Final = 0.05

type _Pair = tuple[str, str]


class Meta(msgspec.Struct, frozen=True):
    """Settings fixed at the creation of a data directory."""

    format_version: int
    partition_count: int
    incarnation: str
    """Random id of this directory's devices, 16 hexadecimal digits."""
    pipeline: str
    source: dict[str, str | int]
    """The source's fingerprint."""
    created_by: str
    has_cloud: bool
    """Whether partitions have their cloud side with them."""
    partitions: str = _PARTITIONS
    """Folder of the partitions' databases."""
    placing: int | msgspec.UnsetType = msgspec.UNSET
    """``placing_mark`` of the rule that places devices in partitions, unless it is 0."""
    grown_from: tuple[int, ...] = ()
    """Former numbers of partitions, whose topics may have unread records."""


class DataDir(AbstractContextManager["DataDir"]):
    """An opened data directory. Close it; ``with`` does."""

    def __init__(
        self,
        path: Path,
        meta: Meta,
        lock: int | None,
        *,
        is_own_folder: bool = False,
        is_shared: bool = False,
    ) -> None:
        """Wrap an opened directory; use ``open`` or ``open_read_only``."""
        self.path = path
        self.meta = meta
        self._lock = lock
        self._is_own_folder = is_own_folder
        self._is_shared = is_shared
        self.packages_path = path / _PACKAGES
        """Folder of packages installed while a host ran."""
        self.inbox_path = path / _INBOX
        """Folder in which other processes leave messages."""
        self.status_path = path / _STATUS
        """Status file of the last run, for people."""

    @classmethod
    def open(  # noqa: PLR0913 - settings and options
        cls,
        path: Path,
        *,
        partition_count: int,
        pipeline: str,
        source: Mapping[str, str | int],
        has_cloud: bool = True,
        placing: int = 0,
        is_shared: bool = False,
        lock_timeout_s: float = 0.0,
    ) -> "DataDir":
        """Open a data directory for writing, or make it.

        Fixed at its creation are the partition count, the pipeline's name, the source's
        fingerprint, whether partitions have their cloud side with them (``has_cloud``), and the
        placement of devices (``placing``, a ``placing_mark``). ``is_shared``: other processes may
        also have it open, each with partitions of its own. ``lock_timeout_s`` is the wait for an
        owner that is ending.

        Raises:
            FormatVersionError: It has another format or partition count.
            StoreCorruptedError: ``meta.json`` is damaged or lost.
            StoreFullError: The disk has no room for it.
            StoreLockedError: Another process owns it.
            StoreError: It cannot be made, has foreign files, belongs to another pipeline, or has
                its devices in other partitions.
        """
        with _map_os_errors(path):
            str(path).encode()  # RocksDB needs a path that is text
            # checked before the lock file is made, to leave nothing in a foreign folder
            is_own_folder = not path.exists()
            make_folder(path, mode=0o700)
            _check_contents(path)
            lock = _lock(path, lock_timeout_s, is_shared=is_shared)
        with ExitStack() as undo:
            undo.callback(os.close, lock)
            with _map_os_errors(path):
                meta = _read_meta(path)
                if meta is None:
                    # checked again under the lock
                    _check_contents(path)
                    meta = Meta(
                        DATA_DIR_VERSION,
                        partition_count,
                        secrets.token_hex(8),
                        pipeline,
                        dict(source),
                        __version__,
                        has_cloud,
                        placing=placing or msgspec.UNSET,
                    )
                    _write_meta(path, meta)
            if is_shared:
                fcntl.flock(lock, fcntl.LOCK_SH)
            _check(path, meta, partition_count, pipeline, has_cloud=has_cloud)
            if (meta.placing or 0) != placing:
                raise StoreError(
                    f"{path} has its devices in other partitions, as its source or tunnel had "
                    "another connector: give the previous connectors, or a new --data-dir"
                )
            undo.pop_all()
        return cls(path, meta, lock, is_own_folder=is_own_folder, is_shared=is_shared)

    @classmethod
    def open_read_only(cls, path: Path) -> "DataDir":
        """Open a data directory for reading, beside a process that writes.

        Raises:
            FormatVersionError: It has another format.
            StoreCorruptedError: ``meta.json`` is damaged.
            StoreMissingError: The path is no data directory.
        """
        with _map_os_errors(path):
            meta = _read_meta(path) if path.is_dir() else None
        if meta is None:
            raise StoreMissingError(
                f"{path} is no data directory: check --data-dir, `walle run` makes one"
            )
        return cls(path, meta, None)

    @staticmethod
    def open_inbox(path: Path, pipeline: str) -> Path:
        """Return a pipeline's inbox, made if missing, even while a process has the directory open.

        Raises:
            StoreError: It cannot be made, or the directory has foreign files, or belongs to another
                pipeline.
        """
        with _map_os_errors(path):
            make_folder(path, mode=0o700)
            _check_contents(path)
            meta = _read_meta(path)
            if meta is not None:
                _check(path, meta, meta.partition_count, pipeline, has_cloud=True)
            make_folder(path / _INBOX, mode=0o700)
        return path / _INBOX

    def partition_path(self, number: int) -> Path:
        """Return the folder of a partition's database."""
        return self.path / self.meta.partitions / f"{number:02d}"

    def grown(self, count: int) -> Meta:
        """Return the settings of this directory with more partitions, in another folder."""
        former = (*self.meta.grown_from, self.meta.partition_count)
        return msgspec.structs.replace(
            self.meta,
            partition_count=count,
            partitions=f"{_PARTITIONS}-{count}",
            grown_from=tuple(each for each in former if count % each == 0 and count != each),
        )

    def grow(self, meta: Meta) -> None:
        """Change to the databases of ``grown``, and remove the others; blocks."""
        old = self.path / self.meta.partitions
        with _map_os_errors(self.path):
            # the last run ended cleanly, and the file has a byte per former partition
            (self.path / _IN_HAND).unlink(missing_ok=True)
            _write_meta(self.path, meta)
            self.meta = meta
            shutil.rmtree(old, ignore_errors=True)  # no process has opened it since

    @property
    def owner(self) -> int | None:
        """Process id of the run that has the directory open now, None without one."""
        try:
            lock = os.open(self.path / "LOCK", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # held for a moment only: a run that starts now tries again
            has_one_owner = not try_lock(lock, fcntl.LOCK_SH)
            if not has_one_owner and try_lock(lock, fcntl.LOCK_EX):
                return None
            text = os.pread(lock, 32, 0).decode(errors="replace").strip()
            if has_one_owner:
                return int(text) if text.isdecimal() else 0
            # the latest of several owners; or only another reader that checks now
            return int(text) if text.isdecimal() and Path(f"/proc/{text}").exists() else None
        finally:
            os.close(lock)

    def quarantined(self) -> list[tuple[str, str]]:
        """Return the (task, device id) pairs that ended a process before, each once.

        Raises:
            StoreCorruptedError: The quarantine file is damaged.
        """
        path = self.path / _QUARANTINE
        try:
            # a power cut may have left an incomplete last line, whose pair was never reported as
            # stored
            whole, _, _ = (path.read_bytes() if path.exists() else b"").rpartition(b"\n")
            pairs = [msgspec.json.decode(line, type=_Pair) for line in whole.splitlines() if line]
        except msgspec.DecodeError as error:
            raise StoreCorruptedError(
                f"{path} is damaged ({error}): delete it to let all tasks run again"
            ) from error
        return list(dict.fromkeys(pairs))

    def add_quarantined(self, task: str, device_id: str) -> None:
        """Store a pair; any thread, on the disk when it returns."""
        line = msgspec.json.encode((task, device_id)) + b"\n"
        path = self.path / _QUARANTINE
        with _map_os_errors(self.path), path.open("a+b") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)  # processes of other hosts may write, too
            opened.seek(0)
            opened.truncate(opened.read().rfind(b"\n") + 1)
            opened.write(line)
            opened.flush()
            os.fsync(opened.fileno())
            sync_folder(self.path)

    def open_in_hand(self, hosts: int = 1, own: Collection[int] | None = None) -> InHand:
        """Open the marks of partitions that are in a VM's call; they need no closing.

        After the partitions' numbers it has further ones for the starts of host processes.

        Args:
            hosts: Number of processes that share it.
            own: Numbers of this process; None for all.
        """
        with _map_os_errors(self.path):
            return InHand.open(self.path / _IN_HAND, self.meta.partition_count + hosts, own)

    def check_parts(self, *, has_copies: bool = False) -> None:
        """Refuse a directory that has lost a partition since it was complete.

        If it ``has_copies`` elsewhere, the partition is restored from there.

        Raises:
            StoreCorruptedError: A database that existed before is missing.
        """
        if (self.path / _COMPLETE).exists() and not has_copies:
            for part in map(self.partition_path, range(self.meta.partition_count)):
                if not (part / "CURRENT").exists():
                    raise StoreCorruptedError(
                        f"{self.path} has lost {part.relative_to(self.path)}: restore it from a "
                        "copy, or give a new --data-dir"
                    )

    def wait_for_parts(self) -> None:
        """Wait for processes of a dead run; blocks, see ``wait_for_locks``."""
        wait_for_locks(list(map(self.partition_path, range(self.meta.partition_count))))

    def mark_complete(self) -> None:
        """Record that every database was made; may be called twice."""
        with _map_os_errors(self.path):
            (self.path / _COMPLETE).touch(mode=0o600)
            sync_folder(self.path)

    def discard_if_bare(self) -> None:
        """Remove a directory without any database, as if it had never been opened.

        A folder that existed before stays.
        """
        paths = (self.path / self.meta.partitions, self.path / _QUARANTINE)
        if self._lock is None or any(path.exists() for path in paths):
            return
        with suppress(OSError):
            # in this order, so that the rest after a kill is recognised as incomplete
            for name in (_STATUS, _IN_HAND, "meta.json", "LOCK"):
                (self.path / name).unlink(missing_ok=True)
            if self._is_own_folder:
                self.path.rmdir()

    def close(self) -> None:
        """Release the lock; may be called twice."""
        if self._lock is not None:
            # a shared file has the id of the latest owner; the remaining owners are not known
            if not self._is_shared:
                with suppress(OSError):
                    os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


@contextmanager
def _map_os_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeEncodeError as error:
        raise StoreError(
            f"the data directory {str(path)!a} has a name that is not text: give another --data-dir"
        ) from error
    except OSError as error:
        if isinstance(error, StoreError):  # StoreMissingError is a FileNotFoundError too
            raise
        if error.errno in FULL_DISK:
            raise StoreFullError(
                f"the disk of {path} is full ({error}): free space and run again"
            ) from error
        raise StoreError(f"the data directory {path} cannot be used: {error}") from error


def _check_contents(path: Path) -> None:
    names = {entry.name for entry in path.iterdir()}
    if "meta.json" in names or names <= _HALF_MADE:
        return
    foreign = names - _HALF_MADE - _MADE
    if foreign:
        raise StoreError(
            f"{path} holds other files ({', '.join(sorted(foreign)[:3])}) and is no data "
            "directory: give an empty or new --data-dir"
        )
    raise StoreCorruptedError(
        f"{path} holds databases but its meta.json is lost: restore it from a copy, or give a new "
        "--data-dir"
    )


def _lock(path: Path, timeout_s: float, *, is_shared: bool) -> int:
    deadline_ms = monotonic_ms() + timeout_s * 1000.0
    while True:
        make_folder(path, mode=0o700)
        with ExitStack() as undo:
            lock = os.open(path / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, lock)
            # a process that makes a directory locks it exclusively until then
            is_made = is_shared and (path / "meta.json").exists()
            if try_lock(lock, fcntl.LOCK_SH if is_made else fcntl.LOCK_EX):
                # its owner may have discarded the directory meanwhile
                if is_file(lock, path / "LOCK"):
                    # the pid is only for another process's message, and the disk may be full
                    with suppress(OSError):
                        os.ftruncate(lock, 0)
                        os.pwrite(lock, str(os.getpid()).encode(), 0)
                    undo.pop_all()
                    return lock
            elif monotonic_ms() >= deadline_ms:
                owner = os.pread(lock, 32, 0).decode(errors="replace").strip()
                raise StoreLockedError(
                    f"the data directory {path} is in use by process {owner or 'unknown'}: "
                    "stop it, or give another --data-dir"
                )
        time.sleep(_RETRY_S)


def _read_meta(path: Path) -> Meta | None:
    try:
        content = (path / "meta.json").read_bytes()
    except FileNotFoundError:
        return None
    try:
        raw = msgspec.json.decode(content, type=dict)
        if raw.get("format_version") != DATA_DIR_VERSION:
            raise FormatVersionError(
                f"{path} has format {raw.get('format_version')}, this version reads "
                f"{DATA_DIR_VERSION}: use the version of walle_stream that wrote it, or a new "
                "--data-dir"
            )
        return msgspec.json.decode(content, type=Meta)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreCorruptedError(
            f"{path / 'meta.json'} is damaged ({error}): restore it or use a new --data-dir"
        ) from error


def _write_meta(path: Path, meta: Meta) -> None:
    content = msgspec.json.encode(meta) + b"\n"
    put_file(path / "meta.json", content, mode=0o600, part=path / "meta.json.new")
    sync_folder(path.parent)  # another process may have made it just now


def _check(path: Path, meta: Meta, partition_count: int, pipeline: str, *, has_cloud: bool) -> None:
    if meta.has_cloud != has_cloud:
        raise StoreError(
            f"{path} was made with another kind of tunnel (spec.tunnel.connector): give the "
            "previous one, or a new --data-dir"
        )
    if meta.partition_count != partition_count:
        raise FormatVersionError(
            f"{path} was made with {meta.partition_count} partitions, the pipeline has "
            f"{partition_count}: set spec.runtime.partitions={meta.partition_count}, or give a "
            "new --data-dir"
        )
    if meta.pipeline != pipeline:
        raise StoreError(
            f"{path} belongs to pipeline {meta.pipeline!r}, not {pipeline!r}: give another "
            "--data-dir"
        )
