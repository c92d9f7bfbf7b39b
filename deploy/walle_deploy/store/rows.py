"""Rows of the store, as its callers see them.

The store knows neither stages nor gates. A release is a name, a revision, text that only the
layer above reads, and its present offer.
"""

from typing import Final, NamedTuple

import msgspec

from walle_deploy.model.releases import ActiveRelease


class StoredRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A stored release."""

    release_id: str
    task: str
    """``SCENARIO/TASK``."""
    version: str
    revision: int
    """Begins at 1, and grows by one with every change."""
    is_open: bool
    created_ms: int
    state: str
    """JSON of the layer above."""
    offer: ActiveRelease | None = None
    """The version that devices get or lose now; None for neither."""

    @property
    def is_offered(self) -> bool:
        """Whether the release gives its version to devices now."""
        return self.offer is not None and self.offer.stage != "withdrawn"


class AuditHead(msgspec.Struct, frozen=True):
    """The end of the audit log's chain."""

    number: int = 0
    """Number of the last entry; 0 for none."""
    hash: str = ""
    """Hash of the last entry, SHA-256 in hexadecimal digits."""


class SealedEntry(msgspec.Struct, frozen=True):
    """An entry of the audit log with its link to the previous entry."""

    number: int
    """From 1, without gaps."""
    release_id: str
    """The release of the entry, or empty."""
    text: str
    """Canonical JSON; it contains the hash of the previous entry."""
    hash: str
    """SHA-256 of the text, hexadecimal."""


LAST: Final = "last"
"""Group of a task without a version. Each device counts once, with the version that it reported
last. The numbers of its windows are no times, but ids of the versions' scopes."""


END: Final = 2**62
"""A number above those of all windows."""

WINDOW_MS: Final = 60_000
"""Length of a window."""


class Scope(NamedTuple):
    """A target for counts: a version, or a group of a release."""

    task: str
    """``SCENARIO/TASK``."""
    version: str
    release: str = ""
    group: str = ""
    """Empty for the version on all devices."""


class StoredScope(NamedTuple):
    """A scope in the store, and the limits of its folding.

    A window is a minute of the database's clock, see ``ReadTransaction.window_at``. Windows before
    ``minutes_from`` are folded into hours, those before ``hours_from`` into one, number 0.
    """

    id: int
    scope: Scope
    minutes_from: int
    """A whole hour."""
    hours_from: int
    """The same, not above ``minutes_from``."""
    step_ms: int
    """The last step of its release with counts; 0 for none."""
    step_from: int
    """The first window with counts of that step."""

    def row_of(self, number: int) -> int:
        """Return the number of the stored window that includes a window."""
        if number >= self.minutes_from:
            return number
        return number - number % 60 if number >= self.hours_from else 0


class CountedDevice(NamedTuple):
    """One device in one scope."""

    failures: int
    """Failed runs since the device's first report here."""
    crashes: int
    seen: int
    """Window of the last report."""
    failed: int
    """Window of the last failed run; -1 for none."""
    crashed: int
    """Window of the last crash; -1 for none."""
    weighed: int
    """Window of the last report whose times and sizes counted; -1 for none."""


class CountedWindow(NamedTuple):
    """One window of one scope.

    Each device is in the ``seen`` of one window, that of its last report. So the number of devices
    that reported since a window is the sum over all windows since, without any set of devices.
    """

    number: int
    seen: int
    """Devices with their last report in this window."""
    failed: int
    """Devices with their last failed run in this window."""
    crashed: int
    """Devices with their last crash in this window."""
    last_ms: int
    data: bytes
    """All other counts, in the layer above's encoding."""
