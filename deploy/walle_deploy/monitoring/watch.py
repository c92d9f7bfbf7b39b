"""Looks at how versions do now and then, and tells what the alarm board finds."""

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
"""``SCENARIO/TASK``, and a version of it."""

RECENT_WINDOWS: Final = 15
"""Minutes that ``recent`` is about, with the one at hand."""
_log = logging.getLogger(__name__)
_KEY: Final = "alarms/board"


class FleetView:
    """How versions did of late, whichever worker counted them. One thread; blocks on the store."""

    def __init__(self, store: ReleaseStore, wanted: Callable[[], Collection[Version]]) -> None:
        """Read nothing yet."""
        self._store = store
        self._wanted = wanted
        self._windows: dict[Version, list[CountedWindow]] = {}
        self._since_ms: dict[Version, int] = {}

    def versions(self) -> dict[Version, int]:
        """Look; return when the last report of each version came, epoch ms.

        Of a version that nobody ever reported: when it was first asked for here.

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
                # of one that is silent when it was not
                last = windows or transaction.windows(stored.id, 0, END)
                if last and last[-1].last_ms <= now_ms:  # the clock is not set back since
                    self._since_ms[scope[:2]] = last[-1].last_ms
        return dict(self._since_ms)

    def recent(self, task: str, version: str) -> VersionHealth:
        """Return how a version did in the last ``RECENT_WINDOWS``, as of the last look."""
        windows = self._windows.get((task, version), [])
        return health_of(task, version, windows, merged_counts(window.data for window in windows))


class News(Protocol):
    """Where messages come from that no rule is about."""

    def look(self) -> list[AlarmMessage]:
        """Return what is new since the last look; blocks on where it comes from."""

    def keep(self) -> None:
        """Remember that all that ``look`` gave was told, so that a restart tells it no more."""


class WatchOptions(msgspec.Struct, frozen=True):
    """What a watch has besides."""

    rows: StoredRows | None = None
    """Keeps which alarms were told, so that a restart, or another process, tells none again."""
    is_active: Callable[[str, str], bool] = lambda _task, _version: True
    """Whether a version should be on devices: others may be silent."""
    leads: Callable[[], bool] = lambda: True
    """Whether this process is the one of several that looks, now."""
    news: News | None = None
    is_idle: Callable[[], bool] = lambda: True
    """Whether all that was told is where it should go. What waits while the process dies is
    told again by the next one: alarms come at least once, under the same id where it is one of
    a release."""


class AlarmWatch:
    """A thread that looks. What it tells must not block (``Webhook.send``)."""

    def __init__(
        self,
        fleet: FleetView,
        board: AlarmBoard,
        tell: Callable[[AlarmMessage], object],
        every_s: float,
        options: WatchOptions | None = None,
    ) -> None:
        """Start its thread."""
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
        """Look once, tell, and return what was told; blocks. The thread does so by itself.

        Raises:
            StoreError: It was told, and will be again after a restart.
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
            board.firing = before  # nobody was told: the next look finds it again
            raise
        for message in messages:
            _log.warning("alarm %s", message.text)
            self._tell(message)
            self._is_kept = False
        self.keep()
        return messages

    def keep(self) -> None:
        """Remember what was told, once all of it is where it should go. Blocks on the store.

        Raises:
            StoreError: It is not remembered, and will be told again after a restart.
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
        """Look no more; may be called twice."""
        self._ends.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._ends.wait(self._every_s):
            try:
                if self._options.leads():
                    self.look(wall_ms())
                else:
                    self._is_kept = True  # another one looks: what it keeps counts
            except WalleError as error:
                _log.warning("alarms: %s", error)
            except Exception:  # noqa: BLE001 - looking must go on, whatever one look met
                _log.exception("alarms: a look failed")


@contextmanager
def watching(
    fleet: FleetView, alarms: AlarmsSpec, board: AlarmBoard, options: WatchOptions
) -> Iterator[None]:
    """Watch; blocks on the store, at the end also on what waits for the webhook."""
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
