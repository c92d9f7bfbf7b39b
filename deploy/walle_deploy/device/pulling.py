"""Verified files as a device's agent takes them: pulled, read once more, recorded."""

from collections.abc import Mapping

from walle_deploy.device.files import DeviceIdentity, VerifiedFiles
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.model.pushes import PushedTask


class PulledFiles:
    """A ``FileSource`` of the agents of one machine. Any thread; blocks."""

    def __init__(self, files: VerifiedFiles, secrets: Mapping[str, str] | None = None) -> None:
        """Share a folder of files.

        Args:
            files: The folder.
            secrets: By device, of its enrolment; a device without gets no exclusive files.
        """
        self._files = files
        self._secrets = secrets or {}

    def pull(
        self, device: DeviceProfile, task: PushedTask, metadata_url: str, told_ms: int | None
    ) -> Mapping[str, bytes]:
        """Return a version's files; see ``FileSource``."""
        secret = self._secrets.get(device.device, "")
        identity = DeviceIdentity(device.device, device.user, secret)
        paths = self._files.pull(task, metadata_url, identity, told_ms)
        digests = {file.resource: file.sha256 for file in task.files}
        return {name: self._files.blobs.read(digests[name]) for name in paths}

    def record(self, device: str, task: PushedTask) -> None:
        """Keep a version's files, and those of the one before; others may go."""
        self._files.installed(device).install(task)
