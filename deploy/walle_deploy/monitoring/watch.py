"""Watches the health of versions, and passes on the messages of the alarm board."""

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from walle_deploy.model.health import VersionHealth
from walle_deploy.monitoring.alarms import AlarmBoard, AlarmMessage
from walle_deploy.monitoring.counts import merged_counts
from walle_deploy.monitoring.definition import AlarmsSpec
from walle_deploy.monitoring.reader import health_of
from walle_deploy.monitoring.webhook import Webhook, WebhookOptions
from walle_deploy.store.adapters import StoredRows
from walle_deploy.store.port import ReleaseStore
from walle_deploy.store.rows import END, CountedWindow, Scope
from walle_stream.clock import wall_ms
from walle_stream.errors import WalleError

type Version = tuple[str, str]
"""A task as ``SCENARIO/TASK``, and its version."""

RECENT_WINDOWS: Final = 15
"""Minutes that ``recent`` covers, including the current one."""
_log = logging.getLogger(__name__)
_KEY: Final = "alarms/board"


class FleetView:
    """Recent health of versions, counted by any worker. One thread; blocks on the store."""

    def __init__(self, store: ReleaseStore, wanted: Callable[[], Collection[Version]]) -> None:
        """Start without any reads."""
        self._store = store
        self._wanted = wanted
        self._windows: dict[Version, list[CountedWindow]] = {}
        self._since_ms: dict[Version, int] = {}

    def versions(self) -> dict[Version, int]:
        """Read the store, and return the time of each version's last report in epoch ms.

        For a version without any report it is the time of the first look for it.

        Raises:
            ServiceUnreachableError: The store cannot be read.
        """
        wanted = self._wanted()
        with self._store.reading() as transaction:
            now_ms, before = transaction.now_ms(), self._since_ms
            first = transaction.window_at(now_ms) - RECENT_WINDOWS + 1
            scopes = transaction.scopes([Scope(*version) for version in wanted])
            self._since_ms = {version: before.get(version, now_ms) for version in wanted}
            self._windows.clear()
            for scope, stored in scopes.items():
                windows = transaction.windows(stored.id, first)
                self._windows[scope[:2]] = list(windows)
                # a silent version has an older last window
                last = windows or transaction.windows(stored.id, 0, END)
                if last and last[-1].last_ms <= now_ms:  # false after the clock was set back
                    self._since_ms[scope[:2]] = last[-1].last_ms
        return dict(self._since_ms)

    def recent(self, task: str, version: str) -> VersionHealth:
        """Return a version's health in the last ``RECENT_WINDOWS``, as of the last look."""
        windows = self._windows.get((task, version), [])
        return health_of(task, version, windows, merged_counts(window.data for window in windows))


class News(Protocol):
    """A source of messages that belong to no rule."""

    def look(self) -> list[AlarmMessage]:
        """Return messages since the last look; blocks on the source."""

    def keep(self) -> None:
        """Remember that all messages of ``look`` were told, so no restart tells them again."""


class WatchOptions(msgspec.Struct, frozen=True):
    """Optional parts of a watch."""

    rows: StoredRows | None = None
    """Store of told alarms, so that no restart or other process tells them again."""
    is_active: Callable[[str, str], bool] = lambda _task, _version: True
    """Return whether a version should be on devices; other versions may be silent."""
    leads: Callable[[], bool] = lambda: True
    """Return whether this process, of several, looks now."""
    news: News | None = None
    is_idle: Callable[[], bool] = lambda: True
    """Return whether all messages were delivered or dropped. If the process is killed before, the
    next one tells waiting messages again. So alarms come at least once, and those of a release keep
    their id."""


class AlarmWatch:
    """A thread that looks at regular times. ``tell`` must not block (``Webhook.send``)."""

    def __init__(
        self,
        fleet: FleetView,
        board: AlarmBoard,
        tell: Callable[[AlarmMessage], object],
        every_s: float,
        options: WatchOptions | None = None,
    ) -> None:
        """Start the thread."""
        self._fleet = fleet
        self._board = board
        self._tell = tell
        self._every_s = every_s
        self._options = options or WatchOptions()
        self._is_kept = True
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._live, name="walle-alarms", daemon=True)
        self._thread.start()

    def look(self, now_ms: int) -> list[AlarmMessage]:
        """Look once, tell new messages and return them; blocks. The thread does this by itself.

        Raises:
            StoreError: The messages were told, and will be told again after a restart.
        """
        self.keep()
        board, rows = self._board, self._options.rows
        if self._is_kept and rows is not None and (row := rows.read(_KEY)):
            # another process may have looked meanwhile
            firing = msgspec.msgpack.decode(row, type=list[tuple[str, str, str, int]])
            board.firing = {(rule, task, version): since for rule, task, version, since in firing}
        before = board.firing
        alarms = board.look(
            self._fleet.versions(), self._fleet.recent, now_ms, self._options.is_active
        )
        try:
            news = self._options.news
            messages = [*(news.look() if news is not None else ()), *alarms]
        except BaseException:
            board.firing = before  # no message was told: the next look finds the alarms again
            raise
        for message in messages:
            _log.warning("alarm %s", message.text)
            self._tell(message)
            self._is_kept = False
        self.keep()
        return messages

    def keep(self) -> None:
        """Remember the told messages once all are delivered. Blocks on the store.

        Raises:
            StoreError: Nothing is remembered: a restart will tell the messages again.
        """
        if self._is_kept or not self._options.is_idle():
            return
        if self._options.rows is not None:
            left = [(*key, since) for key, since in self._board.firing.items()]
            self._options.rows.save(_KEY, msgspec.msgpack.encode(left))
        if self._options.news is not None:
            self._options.news.keep()
        self._is_kept = True

    def close(self) -> None:
        """Stop looking; may be called twice."""
        self._ends.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._ends.wait(self._every_s):
            try:
                if self._options.leads():
                    self.look(wall_ms())
                else:
                    self._is_kept = True  # another process looks, and keeps what it told
            except WalleError as error:
                _log.warning("alarms: %s", error)
            except Exception:  # noqa: BLE001 - one failed look must not end the thread
                _log.exception("alarms: a look failed")


@contextmanager
def watching(
    fleet: FleetView, alarms: AlarmsSpec, board: AlarmBoard, options: WatchOptions
) -> Iterator[None]:
    """Watch for the block's duration. Blocks on the store; the end also waits for the webhook."""
    hook = alarms.webhook
    how = WebhookOptions(timeout_s=hook.timeout / 1_000, attempts=hook.attempts)
    webhook = Webhook(hook.url, hook.secret.encode(), how)
    options = replace(options, is_idle=webhook.is_idle)
    watch = AlarmWatch(fleet, board, webhook.send, alarms.every / 1_000, options)
    try:
        yield
    finally:
        watch.close()
        webhook.close()
        watch.keep()
