"""The roles of The Update Framework (TUF) as used here, and their lifetimes.

====================  =====================================  =========  ==============
role                  content                                valid for  renewed with
====================  =====================================  =========  ==============
``root``              keys of each role                      365 days   121 days left
``targets``           key and number of the bins             365 days   121 days left
``packages-000`` ...  bins: name, length, SHA-256 of files   365 days   121 days left
``snapshot``          versions of targets and bins           7 days     56 hours left
``timestamp``         the newest snapshot                    1 day      8 hours left
====================  =====================================  =========  ==============

All bins have one key, ``packages``. A publish needs it, and the keys of snapshot and timestamp. A
bin is made for its first target, so a small repository stays small.
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
"""Field of the timestamp: its signing time. No correct clock is behind it, see device/files."""


def role_of(name: str) -> str:
    """Return the role that signs a metadata file, such as ``packages-01f``."""
    return BINS if name.startswith(f"{BINS}-") else name


def expiry_of(name: str, now_ms: int) -> datetime:
    """Return the expiry of metadata that is signed now; TUF counts in seconds."""
    return datetime.fromtimestamp((now_ms + LIFETIME_MS[role_of(name)]) // 1_000, UTC)


def is_due(name: str, metadata: Metadata[Any], now_ms: int) -> bool:
    """Return whether less than a third of the lifetime is left."""
    left_ms = metadata.signed.expires.timestamp() * 1_000 - now_ms
    return bool(left_ms < LIFETIME_MS[role_of(name)] / 3)
