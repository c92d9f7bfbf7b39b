"""What the check of a device needs to know of a release, and of what stands behind them all."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from walle_deploy.model.pushes import PushedFile


class ActiveRelease(msgspec.Struct, frozen=True):
    """A release that gives its version to some devices now, or took it back from them.

    The versions of several releases of a task are told apart by priority, then by age: the
    first one that takes the device in decides. A device that none takes in gets the task's
    stable version, see ``ReleaseTable``.
    """

    release_id: str
    task: str
    """``SCENARIO/TASK``."""
    version: str
    stage: Literal["beta", "gray", "full", "withdrawn"]
    """``withdrawn``: it gives its version to nobody, see ``ReleaseTable.withdrawn``."""
    policy: Mapping[str, Any] = {}
    """Who may get it at all, as plain JSON of the YAML's ``spec.policy``; {} for everybody."""
    devices: frozenset[str] = frozenset()
    """In stage ``beta``: these alone; else these besides the share, so that they keep what they
    tried."""
    percent: float = 100.0
    """In stages ``gray`` and ``full``: this share, 0 to 100, by a stable hash of salt and device
    id. A device that is in at 5 % is in at 20 %."""
    salt: str = ""
    """Of the hash: the release's id, so that not always the same devices come first."""
    priority: int = 0
    """Higher ones first."""
    created_ms: int = 0
    """Of equal priority the newest first."""
    is_watched: bool = False
    """Whether it is in progress, and its gates look at it: of the devices that its policy lets in
    those within the share that have its version are its group ``new``, those beyond it that have
    the version before are its group ``control``. Named devices are of neither."""
    before: str = ""
    """Of one that is watched: the version before; empty: there is no group to compare it with."""
    step_ms: int = 0
    """Of one that is watched: when its step began, epoch milliseconds."""


def _no_files() -> dict[str, tuple[PushedFile, ...]]:
    # a factory, as a default would be left out where it is JSON: digests in audit logs have it
    return {}


class VersionFiles(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the files of one version are, and whom they are of use to.

    Audit logs have digests of its JSON: a field that is added must be left out of it where it
    has its default, and those that have always been in it must stay.
    """

    shared: tuple[PushedFile, ...]
    """The package first. Their ``url`` is relative to the CDN's address."""
    exclusive: Mapping[str, tuple[PushedFile, ...]] = msgspec.field(default_factory=_no_files)
    """By device id or ``user:ID``: files of its own; ``url`` is relative to the CEN's."""
    interpreters: tuple[str, ...] = ()
    """Pythons that the script was checked with, such as ``cpython-314``; empty: not
    known, as of versions that were published before this was written down."""


class ReleaseTable(msgspec.Struct, frozen=True):
    """All that a check needs; made anew when a release changes, never changed."""

    generation: int
    """Grows with every change."""
    releases: tuple[ActiveRelease, ...] = ()
    stable: Mapping[str, str] = {}
    """For each task the version of devices that no release takes in; not named: none of their
    business, they keep what they have."""
    files: Mapping[str, VersionFiles] = {}
    """By ``SCENARIO/TASK@VERSION``."""
    withdrawn: Mapping[str, frozenset[str]] = {}
    """For each task versions that were rolled back, or superseded before they were done: who has
    one, and is given no other, loses it."""

    def interpreters(self, task: str, version: str) -> tuple[str, ...]:
        """Return those that a version was checked with; empty: any."""
        files = self.files.get(f"{task}@{version}")
        return () if files is None else files.interpreters
