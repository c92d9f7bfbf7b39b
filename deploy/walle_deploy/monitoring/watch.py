"""Looks at how versions do now and then, and tells what the alarm board finds."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.alarms import AlarmBoard, AlarmMessage
from walle_deploy.monitoring.snapshots import SnapshotStore
from walle_stream.clock import wall_ms
from walle_stream.errors import WalleError

_log = logging.getLogger(__name__)

_KEY: Final = "alarms/board"


class Seen(Protocol):
    """What alarms are about: a ``Monitor``, or a ``FleetView`` over all workers."""

    def versions(self) -> Mapping[tuple[str, str], int]:
        """Return when the last report of each version came, epoch ms, by task and version."""
        ...

    def recent(self, task: str, version: str) -> VersionHealth:
        """Return how a version did in the last minutes."""
        ...


class WatchOptions(msgspec.Struct, frozen=True):
    """What a watch has besides."""

    store: SnapshotStore | None = None
    """Keeps which alarms were told, so that a restart, or another process, tells none again."""
    is_active: Callable[[str, str], bool] = lambda _task, _version: True
    """Whether a version should be on devices: others may be silent."""
    leads: Callable[[], bool] = lambda: True
    """Whether this process is the one of several that looks, now."""
    news: Callable[[], Iterable[AlarmMessage]] = tuple
    """Gives further messages, each once."""


class AlarmWatch:
    """A thread that looks. What it tells must not block (``Webhook.send``)."""

    def __init__(
        self,
        seen: Seen,
        board: AlarmBoard,
        tell: Callable[[AlarmMessage], object],
        every_s: float,
        options: WatchOptions | None = None,
    ) -> None:
        """Start its thread.

        Args:
            seen: What it looks at.
            board: What it asks.
            tell: Gets each message.
            every_s: Time between two looks.
            options: See there.
        """
        self._seen = seen
        self._board = board
        self._tell = tell
        self._every_s = every_s
        self._options = options or WatchOptions()
        self._ends = threading.Event()
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
        board, store = self._board, self._options.store
        if store is not None and (row := store.read([_KEY]).get(_KEY)):
            # another process may have looked meanwhile
            firing = msgspec.msgpack.decode(row, type=list[tuple[str, str, str, int]])
            board.firing = {(rule, task, version): since for rule, task, version, since in firing}
        found = board.look(
            self._seen.versions(), self._seen.recent, now_ms, self._options.is_active
        )
        messages = [*self._options.news(), *found]
        for message in messages:
            _log.warning("alarm %s", message.text)
            self._tell(message)
        if found and store is not None:
            left = [(*key, since) for key, since in board.firing.items()]
            store.save({_KEY: msgspec.msgpack.encode(left)})
        return messages

    def close(self) -> None:
        """Look no more; may be called twice."""
        self._ends.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._ends.wait(self._every_s):
            try:
                if self._options.leads():
                    self.look(wall_ms())
            except WalleError as error:
                _log.warning("alarms: %s", error)
