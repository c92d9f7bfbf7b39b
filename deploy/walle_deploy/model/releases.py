"""Releases as the check of a device sees them, and the table behind all checks."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from walle_deploy.model.pushes import PushedFile


class ActiveRelease(msgspec.Struct, frozen=True):
    """A release that gives its version to some devices now, or took it back from them.

    Several releases of a task are ordered by priority, then by age. The first one that admits the
    device decides. Other devices get the task's stable version, see ``ReleaseTable``.
    """

    release_id: str
    task: str
    """``SCENARIO/TASK``."""
    version: str
    stage: Literal["beta", "gray", "full", "withdrawn"]
    """``withdrawn``: no device gets the version, see ``ReleaseTable.withdrawn``."""
    policy: Mapping[str, Any] = {}
    """Condition for any device, as plain JSON of the YAML's ``spec.policy``; {} admits all."""
    devices: frozenset[str] = frozenset()
    """In stage ``beta`` only these devices; later these besides the share, so that they keep the
    version that they tried."""
    percent: float = 100.0
    """In stages ``gray`` and ``full`` the share, 0 to 100, by a stable hash of salt and device id.
    A device that is in at 5 % is in at 20 %."""
    salt: str = ""
    """Salt of the hash: the release's id, so that each release begins with other devices."""
    priority: int = 0
    """Higher priorities come first."""
    created_ms: int = 0
    """Among equal priorities the newest release comes first."""
    is_watched: bool = False
    """Whether the release is in progress and its gates look at it. Its groups are devices that its
    policy admits, without named ones. ``new`` has its version and is within the share. ``control``
    has the previous version and is beyond it."""
    before: str = ""
    """For a watched release the previous version; empty if there is no control group."""
    step_ms: int = 0
    """For a watched release the start of its step in epoch ms."""


def _no_files() -> dict[str, tuple[PushedFile, ...]]:
    # a factory keeps the field in JSON, where digests in audit logs expect it
    return {}


class VersionFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """Addresses of one version's files, and the devices that may use them.

    Audit logs have digests of its JSON. So a new field must be left out at its default, and the
    original fields must stay even then.
    """

    shared: tuple[PushedFile, ...]
    """The package first. ``url`` is relative to the CDN's address."""
    exclusive: Mapping[str, tuple[PushedFile, ...]] = msgspec.field(default_factory=_no_files)
    """Exclusive files by device id or ``user:ID``; ``url`` is relative to the CEN's address."""
    interpreters: tuple[str, ...] = ()
    """Pythons that the script was checked with, such as ``cpython-314``. Empty if unknown, for
    versions that were published before this field existed."""


class ReleaseTable(msgspec.Struct, frozen=True):
    """All data for a check. Immutable; a new table follows each change of a release."""

    generation: int
    """Grows with every change."""
    releases: tuple[ActiveRelease, ...] = ()
    stable: Mapping[str, str] = {}
    """For each task the version of devices outside all releases. Without an entry, these devices
    keep their version."""
    files: Mapping[str, VersionFiles] = {}
    """By ``SCENARIO/TASK@VERSION``."""
    withdrawn: Mapping[str, frozenset[str]] = {}
    """For each task the versions that were rolled back, or superseded before they were done. A
    device with such a version loses it, unless it gets another."""

    def interpreters(self, task: str, version: str) -> tuple[str, ...]:
        """Return the Pythons that a version was checked with; empty for any."""
        files = self.files.get(f"{task}@{version}")
        return () if files is None else files.interpreters
