"""Who answers for which partition: the address that stands beside its committed offset."""

from collections.abc import Collection, Mapping
from threading import Lock
from typing import Final

from kafka.errors import KafkaError

from walle_connectors.brokers import Connection
from walle_connectors.kafka.admin import admin_client
from walle_connectors.kafka.source.client import Told
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
            with admin_client(self._connection) as admin:
                found = admin.list_group_offsets([self._group])[self._group]
        except (KafkaError, WalleError):
            return {}
        return {
            place.partition: owner
            for place, each in found.items()
            if place.topic == self._topic and (owner := Told.read(each.offset, each.metadata).owner)
        }
