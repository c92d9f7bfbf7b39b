"""Questions to device hosts about what is installed on devices, and the answers."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from walle_stream.ports import InstalledTask

type Wanted = Mapping[str, InstalledTask | Literal["definition"] | None]
"""What becomes of tasks, by name: a version, the definition's own one, or nothing; others stay."""

type Refused = dict[str, str]
"""Devices that stay as they were, and why."""


class Installs(msgspec.Struct, frozen=True):
    """Question to a device host: give devices other tasks, each from its next event on."""

    wanted: Sequence[Wanted]
    devices: Mapping[int, Sequence[tuple[str, int]]]
    """By partition: (device id, what it gets as an index of ``wanted``)."""


class GetTasks(msgspec.Struct, frozen=True):
    """Question to a device host: what devices have other than the definition's, by their ids."""

    devices: Mapping[int, Sequence[str]]
    """Ids by partition; other hosts' partitions are passed over."""


class Refusal(NamedTuple):
    """A version that a device should have had, and refused."""

    device_id: str
    task: str
    """As the cloud knows it."""
    version: str
    error: str
    """Class of the failure in reports."""


class Refusals(msgspec.Struct, frozen=True):
    """Message to a device host: report these as failures of the versions."""

    devices: Mapping[int, Sequence[Refusal]]
    """By partition; other hosts' partitions are passed over."""


class Installed(msgspec.Struct):
    """The answer."""

    devices: set[str] = set()
    """Those whose partitions the host has."""
    refused: Refused = {}
    """Those among them that stay as they were, and why."""
    programs: dict[str, InstalledTask] = {}
    """All that devices of the host have now, by program; others can go."""
