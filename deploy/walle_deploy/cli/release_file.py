"""A file of the kind ``Release``, checked together with the files that it names.

A release's name can be used only once. So a release with a wrong path must not begin, because its
service would stop the release a second later.
"""

import os
from pathlib import Path

from walle_deploy.release.model import Release
from walle_deploy.simulation.events import read_events
from walle_deploy.simulation.kinds import DeviceKinds
from walle_stream.errors import SourceError, SpecFileError
from walle_stream.spec.nodes import read_documents
from walle_stream.spec.single import load_single


def load_whole_release(file: Path) -> Release:
    """Load a release, and read all files that its simulation will read; blocks.

    Raises:
        SpecFileError: The release or a file that it names is wrong; the message names the place.
    """
    release = load_single(file, Release)
    step = release.spec.simulation
    if step is None:
        return release
    _need_file(file, ("spec", "simulation", "kinds"), step.kinds)
    kinds = load_single(step.kinds, DeviceKinds).spec.kinds
    own = [kind.events for kind in kinds]
    for index, events in enumerate(own):
        if events is not None:
            _check_events(step.kinds, ("spec", "kinds", index, "events"), events)
    _check_events(file, ("spec", "simulation", "events"), step.events)
    return release


def _check_events(file: Path, key: tuple[str | int, ...], events: Path) -> None:
    _need_file(file, key, events)
    try:
        read_events(events)
    except SourceError as error:
        raise _refused(file, key, error.message) from error


def _need_file(file: Path, key: tuple[str | int, ...], path: Path) -> None:
    if not path.is_file():
        raise _refused(file, key, f"there is no file {str(path)!r}")


def _refused(file: Path, key: tuple[str | int, ...], problem: str) -> SpecFileError:
    return read_documents(file, os.environ)[0].error(key, problem)
