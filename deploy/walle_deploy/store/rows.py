"""What the store keeps, as its callers see it.

The store knows neither stages nor gates: a release is a name, a revision, text that only the
layer above reads, and what it offers now.
"""

from typing import Final, NamedTuple

import msgspec

from walle_deploy.model.releases import ActiveRelease


class StoredRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A release as it lies in the store."""

    release_id: str
    task: str
    """``SCENARIO/TASK``."""
    version: str
    revision: int
    """Grows by one with every change, from 1."""
    is_open: bool
    created_ms: int
    state: str
    """JSON of the layer above."""
    offer: ActiveRelease | None = None
    """What devices are given now, or lose; None for nothing."""

    @property
    def is_offered(self) -> bool:
        """Whether it gives its version to some devices now."""
        return self.offer is not None and self.offer.stage != "withdrawn"


class AuditHead(msgspec.Struct, frozen=True):
    """The end of the audit log's chain."""

    number: int = 0
    """Of the last entry; 0 for none."""
    hash: str = ""
    """Of the last entry, SHA-256 in hexadecimal digits."""


class SealedEntry(msgspec.Struct, frozen=True):
    """An entry of the audit log with what ties it to the one before."""

    number: int
    """From 1, without gaps."""
    release_id: str
    """Whose it is; empty where it is no release's."""
    text: str
    """Canonical JSON; it names the hash of the entry before."""
    hash: str
    """SHA-256 of the text, hexadecimal."""


LAST: Final = "last"
"""Group of a task without a version: each device is counted once, with the version that it reported
last. Its windows are no times: their numbers are ids of the versions' scopes."""


END: Final = 2**62
"""Behind the numbers of all windows."""

WINDOW_MS: Final = 60_000
"""How long a window lasts."""


class Scope(NamedTuple):
    """What reports are counted for: a version, or a group of devices of a release with it."""

    task: str
    """``SCENARIO/TASK``."""
    version: str
    release: str = ""
    group: str = ""
    """Empty for the version on all devices."""


class StoredScope(NamedTuple):
    """A scope in the store, and how its windows are kept.

    A window is a minute of the database's clock, see ``ReadTransaction.window_at``. Old ones are
    folded: those before ``minutes_from`` into hours, those before ``hours_from`` into one, 0.
    """

    id: int
    scope: Scope
    minutes_from: int
    """A whole hour."""
    hours_from: int
    """The same, not above ``minutes_from``."""
    step_ms: int
    """The step of its release of which something was counted last; 0 for none."""
    step_from: int
    """The first window in which something was counted of it."""

    def row_of(self, number: int) -> int:
        """Return the number of the window in which one is kept."""
        if number >= self.minutes_from:
            return number
        return number - number % 60 if number >= self.hours_from else 0


class CountedDevice(NamedTuple):
    """One device in one scope."""

    failures: int
    """Failed runs, since it was first counted here."""
    crashes: int
    seen: int
    """The window in which it reported last."""
    failed: int
    """That of its last failed run; -1 for none."""
    crashed: int
    """That of its last crash; -1 for none."""
    weighed: int
    """That from which times and sizes of its runs counted last; -1 for none."""


class CountedWindow(NamedTuple):
    """One window of one scope.

    Each device is in one window's ``seen``, that in which it reported last. So devices that
    reported since any window are the sum over the windows since, and no set of devices is kept.
    """

    number: int
    seen: int
    """Devices that reported here last."""
    failed: int
    """Devices that had their last failed run here."""
    crashed: int
    """Devices that had their last crash here."""
    last_ms: int
    data: bytes
    """All else that was counted, of the layer above."""
