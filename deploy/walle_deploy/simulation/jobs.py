"""The protocol between a simulation and its child process, over pipes.

The job is one MessagePack value on standard input. Results are frames on standard output, each
written when its version is done: ``u32 length`` and a MessagePack ``VersionResult``. The file
descriptor ``progress_fd`` holds the current position at its beginning: ``PROGRESS``.
"""

from struct import Struct
from typing import Any, Final

import msgspec

from walle_deploy.simulation.report import VersionRun
from walle_stream.vm.package.reader import TaskPackage, read_package

LENGTH: Final = Struct("<I")
PROGRESS: Final = Struct("<II")
"""Index of the version, and of the current event, from 1; 0 while the version loads."""

STUCK: Final = 86
"""Exit status of a process whose script cannot be stopped."""


class Job(msgspec.Struct, kw_only=True):
    """One kind of devices."""

    packages: list[bytes]
    """Versions in their order of execution."""
    events: bytes
    """JSON Lines of ``walle_stream.events.Event``."""
    config: dict[str, Any]
    scale: float
    steps: int
    """0 for the package's own limit."""
    memory_bytes: int
    page_timeout_ms: int | None
    out_of_order_ms: int
    page_max_events: int
    progress_fd: int
    host_pid: int
    """Process that waits for the result; the child never outlives it."""


class VersionResult(msgspec.Struct):
    """The result of one version."""

    index: int
    run: VersionRun
    outputs: dict[str, dict[int, bytes]] = {}
    """Digest of a successful run's output, by device and trigger position."""


def adapted(package: bytes, job: Job) -> TaskPackage:
    """Return a package as devices of a kind run it.

    Raises:
        PackageError: The package is not valid.
    """
    read = read_package(package)
    task = read.manifest.task
    limits = task.limits
    steps = round(limits.steps * job.scale) if limits.steps else 0
    steps = min(steps or job.steps, job.steps) if job.steps else steps
    limits = msgspec.structs.replace(
        limits,
        wall_time_ms=max(10, round(limits.wall_time_ms * job.scale)),
        steps=max(steps, 1) if limits.steps or job.steps else 0,
    )
    task = msgspec.structs.replace(task, config={**task.config, **job.config}, limits=limits)
    manifest = msgspec.structs.replace(read.manifest, task=task)
    return msgspec.structs.replace(read, manifest=manifest)
