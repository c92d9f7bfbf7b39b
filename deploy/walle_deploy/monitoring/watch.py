"""Looks at a monitor now and then, and tells what the alarm board finds."""

import logging
import threading
from collections.abc import Callable
from typing import Final

import msgspec

from walle_deploy.monitoring.alarms import AlarmBoard, AlarmMessage
from walle_deploy.monitoring.monitor import Monitor
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_stream.clock import wall_ms
from walle_stream.errors import WalleError

_log = logging.getLogger(__name__)

_KEY: Final = "alarms/board"


class AlarmWatch:
    """A thread that looks. What it tells must not block (``Webhook.send``)."""

    def __init__(
        self,
        monitor: Monitor,
        board: AlarmBoard,
        tell: Callable[[AlarmMessage], object],
        every_s: float,
        store: SnapshotStore | None = None,
        is_active: Callable[[str, str], bool] | None = None,
    ) -> None:
        """Start its thread.

        Args:
            monitor: What it looks at.
            board: What it asks.
            tell: Gets each message.
            every_s: Time between two looks.
            store: Keeps which alarms were told, so that a restart tells none again.
            is_active: Whether a version should be on devices; all should by default.

        Raises:
            StoreError: The store cannot be read.
        """
        self._monitor = monitor
        self._board = board
        self._tell = tell
        self._every_s = every_s
        self._store = store
        self._is_active = is_active or (lambda _task, _version: True)
        self._ends = threading.Event()
        if store is not None and (row := store.load(_KEY).get(_KEY)):
            firing = msgspec.msgpack.decode(row, type=list[tuple[str, str, str, int]])
            board.firing = {(rule, task, version): since for rule, task, version, since in firing}
        self._thread = threading.Thread(target=self._live, name="walle-alarms", daemon=True)
        self._thread.start()

    def look(self, now_ms: int) -> list[AlarmMessage]:
        """Look once and tell; the thread does so by itself. Blocks on the store.

        Args:
            now_ms: Epoch milliseconds.

        Returns:
            What was told.

        Raises:
            StoreError: It was told, and will be again after a restart.
        """
        messages = self._board.look(
            self._monitor.versions(), self._monitor.recent, now_ms, self._is_active
        )
        for message in messages:
            _log.warning("alarm %s", message.text)
            self._tell(message)
        if messages and self._store is not None:
            firing = [(*key, since) for key, since in self._board.firing.items()]
            self._store.save({_KEY: msgspec.msgpack.encode(firing)})
        return messages

    def close(self) -> None:
        """Look no more; may be called twice."""
        self._ends.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._ends.wait(self._every_s):
            try:
                self.look(wall_ms())
            except WalleError as error:
                _log.warning("alarms: %s", error)
