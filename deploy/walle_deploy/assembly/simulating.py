"""The simulation step of a release: runs the version's package on kinds of devices."""

import hashlib
from pathlib import Path
from threading import Event

from walle_deploy.model.releases import VersionFiles
from walle_deploy.release.ports import SimulationResult
from walle_deploy.release.steps import SimulationStep
from walle_deploy.simulation.events import read_events
from walle_deploy.simulation.kinds import DeviceKinds
from walle_deploy.simulation.simulate import simulate
from walle_stream.errors import IntegrityError, RefNotFoundError
from walle_stream.spec.single import load_single
from walle_stream.vm.package.reader import PACKAGE_MAX_BYTES


class PackageSimulator:
    """A ``Simulator`` that takes packages from a repository's public folder; blocks."""

    def __init__(self, public: Path) -> None:
        """Take the folder of packages."""
        self._public = public

    def simulate(
        self, files: VersionFiles, previous: VersionFiles | None, step: SimulationStep, stop: Event
    ) -> SimulationResult:
        """Run the simulation; see ``Simulator``.

        Raises:
            ReleaseStateError: The simulation was stopped.
            RefNotFoundError: A package is missing here.
            IntegrityError: A package differs from the published one.
            WalleError: Kinds or events cannot be read.
        """
        package = self._package(files)
        before = None if previous is None else self._package(previous)
        kinds, events = load_single(step.kinds, DeviceKinds).spec, read_events(step.events)
        report = simulate(package, kinds, events, before, stop=stop)
        # a skipped simulation has not passed: a person must decide that it does not matter
        return SimulationResult(report.status == "passed", report.text)

    def _package(self, files: VersionFiles) -> bytes:
        file = files.shared[0]
        path = self._public / file.url
        try:
            with path.open("rb") as stream:
                data = stream.read(PACKAGE_MAX_BYTES + 1)
        except OSError as error:
            raise RefNotFoundError(
                f"{file.target}: its package is not in {self._public}: {error.strerror}: pass the "
                "folder of the repository that it was published to"
            ) from error
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise IntegrityError(f"{file.target}: its package was altered: publish it again")
        return data
