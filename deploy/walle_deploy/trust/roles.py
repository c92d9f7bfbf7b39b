"""The roles of The Update Framework (TUF) as they are used here, and how long each is valid.

====================  =====================================  =========  ==============
role                  says                                   valid for  renewed when
====================  =====================================  =========  ==============
``root``              which keys each role has               365 days   121 days left
``targets``           who signs the bins, and how many       365 days   121 days left
``packages-000`` ...  bins: name, length, SHA-256 of files   365 days   121 days left
``snapshot``          the version of each of them            7 days     56 hours left
``timestamp``         the newest snapshot                    1 day      8 hours left
====================  =====================================  =========  ==============

All bins have one key, ``packages``: with those of snapshot and timestamp it is what a publish
needs. A bin is made when its first target comes, so that a small repository stays small.
"""

from datetime import UTC, datetime
from typing import Any, Final

from tuf.api.metadata import Metadata

BINS: Final = "packages"
"""Role of the bins, and prefix of their names."""

LIFETIME_MS: Final = {
    "root": 365 * 86_400_000,
    "targets": 365 * 86_400_000,
    BINS: 365 * 86_400_000,
    "snapshot": 7 * 86_400_000,
    "timestamp": 86_400_000,
}
SIGNED_AT: Final = "x-walle-made-ms"
"""Field of the timestamp: when it was signed. No true clock shows less, see device/files."""


def role_of(name: str) -> str:
    """Return whose keys sign a metadata file, such as ``packages-01f``."""
    return BINS if name.startswith(f"{BINS}-") else name


def expiry_of(name: str, now_ms: int) -> datetime:
    """Return until when metadata signed now is valid; TUF counts in seconds."""
    return datetime.fromtimestamp((now_ms + LIFETIME_MS[role_of(name)]) // 1_000, UTC)


def is_due(name: str, metadata: Metadata[Any], now_ms: int) -> bool:
    """Whether less than a third of its time is left."""
    left_ms = metadata.signed.expires.timestamp() * 1_000 - now_ms
    return bool(left_ms < LIFETIME_MS[role_of(name)] / 3)
