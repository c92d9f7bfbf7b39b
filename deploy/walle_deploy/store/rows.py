"""What the store keeps, as its callers see it.

The store knows neither stages nor gates: a release is a name, a revision, text that only the
layer above reads, and what it offers now.
"""

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
    """Whether something is still to be done for it."""
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
