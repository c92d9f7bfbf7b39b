"""What the controller needs of others: health of versions, and the simulation."""

from threading import Event
from typing import Protocol

import msgspec

from walle_deploy.model.health import ReleaseHealth, ReleaseHealthQuery
from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.steps import SimulationStep


class HealthSource(Protocol):
    """Tells how a release does on the devices of its groups."""

    def release_health(self, query: ReleaseHealthQuery) -> ReleaseHealth:
        """Return what devices reported; may block, is called about once a second.

        Both groups are of one moment: of a window, either both are there or none.

        Raises:
            ServiceUnreachableError: Not known now; the release waits.
        """
        ...


class SimulationResult(msgspec.Struct, frozen=True):
    """What came of it."""

    passed: bool
    why: str
    """For people: each kind of device that failed, and how."""


class Simulator(Protocol):
    """Runs a version in VMs that mimic kinds of devices."""

    def simulate(
        self, files: VersionFiles, previous: VersionFiles | None, step: SimulationStep, stop: Event
    ) -> SimulationResult:
        """Run it; in a thread of its own, may take minutes, may be asked the same again.

        Args:
            files: Of the version.
            previous: Of the one to compare it with.
            step: Kinds of devices, and recorded events.
            stop: Set once nobody wants to know any more: it ends soon then, in any way.

        Raises:
            WalleError: It could not be run. Where that ``is_retryable`` it is asked again, else
                the release is stopped.
        """
        ...
