"""The platform's part of a running host: agents for its devices, reports to the service."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

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


class Access(NamedTuple):
    """Address of the release service, and proofs of identity.

    Before each request, any thread calls the token functions. None: no proof is sent.
    """

    service: str
    """Address without a path."""
    device_token: Callable[[str], str] | None = None
    """Returns a device's token by the device's id."""
    reports_token: Callable[[], str] | None = None
    """Returns the token for reports of all devices of the host."""


class Hosting:
    """The parts that make a host a member of a fleet. Close it."""

    def __init__(
        self,
        access: Access,
        root: bytes,
        profiles: Sequence[DeviceProfile],
        secrets: Mapping[str, str],
        folder: Path,
        *,
        scenario: str = "",
        every_s: float = 10.0,
    ) -> None:
        """Prepare without a request.

        ``secrets`` has each device's enrolment secret. ``every_s`` is the time between two
        requests of a device.

        Raises:
            IntegrityError: The root is not valid.
        """
        self._profiles = profiles
        self._scenario = scenario
        self._every_s = every_s
        self._files = VerifiedFiles(folder, root)
        self._pulled = PulledFiles(self._files, secrets)
        self._client = ReleaseClient(
            f"{access.service.rstrip('/')}/v1/check",
            connections=_THREADS,
            token_of=access.device_token,
        )
        self.reports = HttpReportSink(access.service, token=access.reports_token)
        self._receipts = ReceiptBook(folder / "receipts", [profile.device for profile in profiles])

    def fit(self, assembly: Assembly) -> None:
        """Connect a pipeline with reports and receipts of its devices."""
        assembly.report_sink = self.reports
        assembly.proof_of = self._receipts
        # a new version needs a ready VM
        assembly.warm_vms = max(1, assembly.warm_vms)

    @contextmanager
    def beside(self, run: LocalRun) -> Iterator[Fleet]:
        """Keep the devices of a run at their versions for the block's duration."""
        agents = [
            DeviceAgent(
                *(profile, self._client, self._pulled, run.installation),
                self._scenario,
                self._receipts,
            )
            for profile in self._profiles
        ]
        fleet = Fleet(agents, self._every_s, min(_THREADS, len(agents)))
        fleet.start()
        try:
            yield fleet
        finally:
            fleet.close()

    def close(self) -> None:
        """Send the remaining reports, and close all connections."""
        self.reports.close()
        self._client.close()
        self._files.close()
