"""The release store as monitors see it: rows by key.

Monitors keep their counts there, and ``monitoring.reader.HealthReader`` reads the health of
versions out of them for the gates of releases.
"""

from collections.abc import Mapping
from typing import Final

from walle_deploy.store.port import ReleaseStore

_KIND: Final = "monitor"


class StoredSnapshots:
    """A monitor's ``SnapshotStore`` within a release store; any thread, blocks."""

    def __init__(self, store: ReleaseStore) -> None:
        """Keep rows in a store.

        Args:
            store: Stays the caller's.
        """
        self._store = store

    def load(self, prefix: str) -> Mapping[str, bytes]:
        """Return the rows whose keys begin with a prefix; see ``SnapshotStore``."""
        with self._store.reading() as transaction:
            rows = transaction.snapshots(_KIND)
        return {key: value for key, value in rows.items() if key.startswith(prefix)}

    def save(self, rows: Mapping[str, bytes]) -> None:
        """Write rows, all or none; see ``SnapshotStore``."""
        with self._store.writing() as transaction:
            for key, value in rows.items():
                transaction.put_snapshot(_KIND, key, value)
