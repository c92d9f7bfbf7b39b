"""Owners of partitions: the address in the metadata of each committed offset."""

from collections.abc import Collection, Mapping
from contextlib import closing
from threading import Lock
from typing import Final

from walle_connectors.brokers import Connection
from walle_connectors.kafka.drivers import open_cluster
from walle_connectors.kafka.source.group import Told
from walle_stream.clock import monotonic_ms
from walle_stream.errors import WalleError

_AGAIN_MS: Final = 500.0


class Owners:
    """Cached lookup of owners from the group's coordinator. Thread-safe; calls may block."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        """Prepare the lookup; no broker is contacted yet."""
        self._connection = connection
        self._group = group
        self._topic = topic
        self._lock = Lock()
        self._known: Mapping[int, str] = {}
        self._asked_ms = -_AGAIN_MS

    def __call__(self, wrong: Collection[int] = ()) -> Mapping[int, str]:
        """Return addresses by partition; ``wrong`` names partitions whose cached owner is stale."""
        with self._lock:
            is_due = monotonic_ms() - self._asked_ms >= _AGAIN_MS
            if is_due and (wrong or not self._known):
                self._asked_ms = monotonic_ms()
                self._known = self._ask() or self._known
            return self._known

    def _ask(self) -> Mapping[int, str]:
        try:
            with closing(open_cluster(self._connection)) as cluster:
                found = cluster.committed(self._group, self._topic)
        except WalleError:
            return {}
        return {n: owner for n, told in found.items() if (owner := Told.read(*told).owner)}
