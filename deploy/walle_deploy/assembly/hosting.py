"""The platform's side of a running host: agents for its devices, reports to the service."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from walle_deploy.device.agent import DeviceAgent
from walle_deploy.device.client import ReleaseClient
from walle_deploy.device.files import VerifiedFiles
from walle_deploy.device.fleet import Fleet
from walle_deploy.device.pulling import PulledFiles
from walle_deploy.device.receipts import ReceiptBook
from walle_deploy.model.profile import DeviceProfile
from walle_deploy.monitoring.transport import HttpReportSink
from walle_stream.app.assembly import Assembly
from walle_stream.app.local import LocalRun

_THREADS = 4


class Hosting:
    """What a host needs to be part of a fleet. Close it."""

    def __init__(
        self,
        service: str,
        root: bytes,
        profiles: Sequence[DeviceProfile],
        secrets: Mapping[str, str],
        folder: Path,
        *,
        scenario: str = "",
        every_s: float = 10.0,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            service: Address of the release service, without a path.
            root: Root metadata that the devices were made with.
            profiles: Of the host's devices.
            secrets: By device, of its enrolment.
            folder: Where verified files are kept.
            scenario: Of the definition's tasks.
            every_s: Seconds between two requests of a device.

        Raises:
            IntegrityError: The root is none.
        """
        self._profiles = profiles
        self._scenario = scenario
        self._every_s = every_s
        self._files = VerifiedFiles(folder, root)
        self._pulled = PulledFiles(self._files, secrets)
        self._client = ReleaseClient(f"{service.rstrip('/')}/v1/check", connections=_THREADS)
        self.reports = HttpReportSink(service)
        self._receipts = ReceiptBook(folder / "receipts", [each.device for each in profiles])

    def fit(self, assembly: Assembly) -> None:
        """Set a pipeline up for what comes to its devices."""
        assembly.report_sink = self.reports
        assembly.proof_of = self._receipts
        # a version that comes finds a VM
        assembly.warm_vms = max(1, assembly.warm_vms)

    @contextmanager
    def beside(self, run: LocalRun) -> Iterator[Fleet]:
        """Keep the devices of a run at their versions, while within."""
        agents = [
            DeviceAgent(
                *(each, self._client, self._pulled, run.installation),
                self._scenario,
                self._receipts,
            )
            for each in self._profiles
        ]
        fleet = Fleet(agents, self._every_s, min(_THREADS, len(agents)))
        fleet.start()
        try:
            yield fleet
        finally:
            fleet.close()

    def close(self) -> None:
        """Send what reports are left, close all connections."""
        self.reports.close()
        self._client.close()
        self._files.close()
