"""Which versions a device has: the one that is installed of each task, and the one before.

One small file per device, replaced whole; the files of the version before stay until the next one
is installed, so that a device that is to go back gets none of them again.
"""

import hashlib
from pathlib import Path
from typing import Final

import msgspec

from walle_deploy.model.pushes import PushedTask
from walle_deploy.trust.layout import full_disk, put_file
from walle_stream.errors import IntegrityError
from walle_stream.store.files import make_folder

_FORMAT: Final = 1


class InstalledTask(msgspec.Struct, frozen=True):
    """A task on a device; neither is set when it was uninstalled."""

    current: PushedTask | None = None
    previous: PushedTask | None = None
    """The last version that was good before it."""


class _Record(msgspec.Struct, frozen=True):
    format: int
    device: str
    tasks: dict[str, InstalledTask]


class InstalledVersions:
    """The record of one device; one writer at a time."""

    def __init__(self, folder: Path, device: str) -> None:
        """Read the record.

        Raises:
            IntegrityError: It cannot be read.
        """
        # an id may hold what no file name may
        self.path = folder / f"{hashlib.sha256(device.encode()).hexdigest()[:32]}.json"
        self._device = device
        make_folder(folder)
        record = _read(self.path) if self.path.exists() else None
        self.tasks: dict[str, InstalledTask] = dict(record.tasks) if record else {}

    def install(self, task: PushedTask) -> None:
        """Record that a version is in use now; an empty version: none.

        Raises:
            StoreFullError: The disk is full; the record is as it was.
        """
        before = self.tasks.get(task.task, InstalledTask()).current
        current = task if task.version else None
        tasks = {**self.tasks, task.task: InstalledTask(current, before)}
        with full_disk(self.path):
            put_file(self.path, msgspec.json.encode(_Record(_FORMAT, self._device, tasks)))
        self.tasks = tasks

    def versions(self) -> dict[str, str]:
        """Return what is installed, as a profile carries it."""
        return {name: task.current.version for name, task in self.tasks.items() if task.current}


def named_files(folder: Path) -> set[str]:
    """Return the SHA-256 of every file that any device of this machine may need.

    Raises:
        IntegrityError: A record cannot be read: nothing may be removed then.
    """
    digests = set()
    for path in folder.glob("*.json"):
        for entry in _read(path).tasks.values():
            for task in (entry.current, entry.previous):
                digests |= {file.sha256 for file in task.files} if task else set()
    return digests


def _read(path: Path) -> _Record:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_Record)
    except (OSError, msgspec.MsgspecError) as error:
        raise IntegrityError(f"{path}: cannot be read: {error}: remove it") from error
    if record.format != _FORMAT:
        raise IntegrityError(f"{path}: has format {record.format}, expected {_FORMAT}")
    return record
