"""Who answers for which partition: the address that stands beside its committed offset."""

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
    """Asks the group's coordinator, and remembers. Any thread; blocks."""

    def __init__(self, connection: Connection, group: str, topic: str) -> None:
        """Ask nobody yet."""
        self._connection = connection
        self._group = group
        self._topic = topic
        self._lock = Lock()
        self._known: Mapping[int, str] = {}
        self._asked_ms = -_AGAIN_MS

    def __call__(self, wrong: Collection[int] = ()) -> Mapping[int, str]:
        """Return addresses by partition; the earlier answer for ``wrong`` is not true any more."""
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
