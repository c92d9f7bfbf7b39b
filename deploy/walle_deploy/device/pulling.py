"""Verified files for a device's agent: pulled, read once more, recorded."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from walle_deploy.device.files import DeviceIdentity, VerifiedFiles
from walle_deploy.device.files_blobs import KEPT_MS
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import PushedTask
from walle_deploy.trust.layout import full_disk
from walle_stream.clock import monotonic_ms
from walle_stream.errors import IntegrityError, ServiceUnreachableError, StoreError
from walle_stream.vm.package.reader import read_package


class PulledFiles:
    """Files for the agents of one machine. Any thread; blocks."""

    def __init__(self, files: VerifiedFiles, secrets: Mapping[str, str] | None = None) -> None:
        """Share a folder of files.

        ``secrets`` has the enrolment secret of each device. A device without one gets no version
        that has exclusive files for it.
        """
        self._files = files
        self._secrets = secrets or {}
        self._lock = Lock()
        self._collected_ms = -float(KEPT_MS)

    def pull(
        self, device: DeviceProfile, task: PushedTask, metadata_url: str, service_ms: int | None
    ) -> Mapping[str, bytes]:
        """Return a version's verified files by resource, with the package under an empty name."""
        secret = self._secrets.get(device.device, "")
        identity = DeviceIdentity(device.device, device.user, secret)
        with _explained(self._files.folder):
            paths = self._files.pull(task, metadata_url, identity, service_ms)
            digests = {file.resource: file.sha256 for file in task.files}
            contents = {name: self._files.blobs.read(digests[name]) for name in paths}
        _check_package(task, contents[""])
        return contents

    def record(self, device: str, task: PushedTask) -> None:
        """Record a version, and keep its and the previous one's files; others are removed later."""
        with _explained(self._files.folder), self._lock:
            self._files.installed(device).install(task)
            if monotonic_ms() >= self._collected_ms + KEPT_MS:
                self._files.collect()
                self._collected_ms = monotonic_ms()

    def clear(self) -> None:
        """Remove files that no device's record names; running pulls start again."""
        with suppress(IntegrityError, OSError, StoreError), self._lock:
            self._files.collect(0)


def _check_package(task: PushedTask, package: bytes) -> None:
    # the signature names a version, but reports carry the package's own name: both must agree
    packaged_task = read_package(package).manifest.task
    if (packaged_task.name, packaged_task.version) != (task.task.rpartition("/")[2], task.version):
        raise IntegrityError(
            f"{task.task}@{task.version}: its package holds "
            f"{packaged_task.name}@{packaged_task.version}: it was signed as another version, and "
            "was not used"
        )


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        with full_disk(folder):
            yield
    except ServiceUnreachableError:
        raise  # this error is an OSError, too
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be used: {error.strerror or error}: installed versions stay"
        ) from error
