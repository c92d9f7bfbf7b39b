"""Questions to device hosts about installed tasks, and the answers."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from walle_stream.ports import InstalledTask

type Wanted = Mapping[str, InstalledTask | Literal["definition"] | None]
"""Next version of tasks, by name: a version, the definition's own, or (None) removal.

Other tasks stay.
"""

type Refused = dict[str, str]
"""Devices that stay unchanged, with the reason."""


class Installs(msgspec.Struct, frozen=True):
    """Question to a device host: change the tasks of devices, each from its next event on."""

    wanted: Sequence[Wanted]
    devices: Mapping[int, Sequence[tuple[str, int]]]
    """By partition: (device id, index into ``wanted``)."""


class GetTasks(msgspec.Struct, frozen=True):
    """Question to a device host: the changes of devices to the definition's tasks."""

    devices: Mapping[int, Sequence[str]]
    """Ids by partition; partitions of other hosts are skipped."""


class Refusal(NamedTuple):
    """A version that a device refused to install."""

    device_id: str
    task: str
    """Name of the task in the cloud."""
    version: str
    error: str
    """Class of the failure in reports."""


class Refusals(msgspec.Struct, frozen=True):
    """Message to a device host: report these refusals as failures of the versions."""

    devices: Mapping[int, Sequence[Refusal]]
    """Refusals by partition; partitions of other hosts are skipped."""


class Installed(msgspec.Struct):
    """Answer to ``Installs``."""

    devices: set[str] = set()
    """Devices in the host's partitions."""
    refused: Refused = {}
    """Devices among them that stay unchanged, with the reason."""
    programs: dict[str, InstalledTask] = {}
    """Tasks of all devices of the host, by program; others can be removed."""
