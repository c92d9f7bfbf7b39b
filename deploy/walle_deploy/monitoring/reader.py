"""Reads how versions do over all workers, in any process."""

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.counts import VersionCounts
from walle_deploy.monitoring.rows import ask, load_version
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_stream.errors import ServiceUnreachableError, StoreError


class HealthReader:
    """Health of versions over all workers of a store. One thread; blocks on the store."""

    def __init__(self, store: SnapshotStore) -> None:
        """Keep what to read."""
        self._store = store
        self._asked: set[tuple[str, int]] = set()

    def health(self, task: str, version: str, since_ms: int = 0) -> VersionHealth:
        """Return how a version does, as of the workers' last batches.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.
            since_ms: Only what happened since then; epoch milliseconds, 0 for all. Workers learn
                of it at their next batch; what was before that they know to the minute (the hour
                for what is old), what is after to the report.

        Raises:
            ServiceUnreachableError: The store cannot be read.
        """
        name = f"{task}@{version}"
        merged = VersionCounts()
        try:
            if since_ms > 0 and (name, since_ms) not in self._asked:
                ask(self._store, name, since_ms)
                self._asked.add((name, since_ms))
            for found in load_version(self._store, name):
                merged.merge(found.since(since_ms))
        except StoreError as error:
            raise ServiceUnreachableError(
                f"how {name} does is not known now: {error.message}"
            ) from error
        return merged.health(task, version)
