"""The controller's ports: health of versions, and the simulation."""

from threading import Event
from typing import Protocol

import msgspec

from walle_deploy.model.health import ReleaseHealth, ReleaseHealthQuery
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.steps import SimulationStep


class HealthSource(Protocol):
    """Source of the health of a release on the devices of its groups."""

    def release_health(self, query: ReleaseHealthQuery) -> ReleaseHealth:
        """Return the devices' reports; may block, is called about once a second.

        Both groups are of one moment: each window has both groups or neither.

        Raises:
            ServiceUnreachableError: The reports are not available now; the release waits.
        """
        ...


class SimulationResult(msgspec.Struct, frozen=True):
    """Result of a simulation."""

    passed: bool
    why: str
    """Each kind of device that failed and its failure, for people."""


class Simulator(Protocol):
    """Runner of a version in VMs that mimic kinds of devices."""

    def simulate(
        self, files: VersionFiles, previous: VersionFiles | None, step: SimulationStep, stop: Event
    ) -> SimulationResult:
        """Run the simulation, in its own thread; may take minutes, and may be repeated.

        Args:
            files: Files of the version.
            previous: Files of the version for comparison.
            step: Kinds of devices, and recorded events.
            stop: Set once the result is not needed; the call then ends soon, with any result.

        Raises:
            WalleError: The simulation could not run. If the error ``is_retryable``, the simulation
                is retried; otherwise the release is stopped.
        """
        ...
