"""Whether this worker has its partitions: told them, recovered, and still a member of the group.

A worker that was stopped or cut off is told nothing when its partitions are given to another.
But the broker waits for a session's time from the last request that it answered before it does
that: as long as that time is not over, counted from before the request was sent, nobody else has
the partitions. The clock goes on while the process, or the machine, stands still.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from aiokafka.protocol.group import HeartbeatRequest, LeaveGroupRequest, SyncGroupRequest

from walle_connectors.faust.neighbours import address_problems
from walle_stream.clock import unstopped_ms

_log = logging.getLogger(__name__)

MOVING: Final = "partitions are being moved or recovered"
"""Why a worker has none at the moment, unless it is cut off."""

_GOES_ON: Final = {0, 27}  # of a heartbeat: fine; others join, and until then nothing has moved


class Membership:
    """Remembers until when a worker is a member for sure. Thread-safe."""

    def __init__(self, session_ms: float, clock_ms: Callable[[], float] = unstopped_ms) -> None:
        """Begin as nobody's member.

        Args:
            session_ms: How long the broker waits for a member that says nothing.
            clock_ms: Goes on whatever stands still.
        """
        self._session_ms = session_ms
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._until_ms: float | None = None
        self._watched: Any = None

    @property
    def is_held(self) -> bool:
        """Whether nobody else can have been given the partitions yet."""
        with self._lock:
            return self._until_ms is not None and self._clock_ms() < self._until_ms

    def watch(self, coordinator: Any) -> None:
        """Note what a consumer asks its group's coordinator, and what that says; may be repeated.

        Args:
            coordinator: Of aiokafka; it has no public way to know when the last heartbeat was.
        """
        if coordinator is self._watched:
            return
        self._watched = coordinator
        send = coordinator._send_req  # noqa: SLF001 - see above

        async def send_and_note(request: Any) -> Any:
            sent_ms = self._clock_ms()
            answer = await send(request)
            if isinstance(request, HeartbeatRequest | SyncGroupRequest):
                is_member = answer.error_code in _GOES_ON
                self._note(sent_ms + self._session_ms if is_member else None)
            elif isinstance(request, LeaveGroupRequest):
                self._note(None)
            return answer

        coordinator._send_req = send_and_note  # noqa: SLF001 - see above

    def _note(self, until_ms: float | None) -> None:
        with self._lock:
            self._until_ms = until_ms


class Serving:
    """What a worker may answer of; one event loop."""

    def __init__(self, app: Any, table: Any) -> None:
        """Begin before the app starts.

        Args:
            app: Faust's.
            table: What is asked; its changelog's partitions are its own.
        """
        self._app = app
        self._table = table
        self._said: set[str] = set()
        self._has_tables = False
        self._membership = Membership(app.conf.broker_session_timeout * 1000)

        # every rebalance begins so; the signal of what was assigned may come behind the recovery
        @app.on_partitions_revoked.connect  # type: ignore[untyped-decorator]
        async def on_move(*_: Any, **__: Any) -> None:
            self._has_tables = False
            self._membership.watch(app.consumer._thread._consumer._coordinator)  # noqa: SLF001 - in no public attribute

        @app.on_rebalance_complete.connect  # type: ignore[untyped-decorator]
        async def on_recovered(*_: Any, **__: Any) -> None:
            self._has_tables = True
            self._warn()

    @property
    def problem(self) -> str:
        """Why nothing can be said of any device now; empty if it can.

        Ask behind a look into the table: a process that was stopped in between has an older row.
        """
        if not self._has_tables or self._app.rebalancing or self._app.should_stop:
            return MOVING
        if not self._membership.is_held:
            return "the broker has not answered this worker for a session's time"
        return ""

    @property
    def partitions(self) -> set[int]:
        """Those whose rows are in the table."""
        found = self._app.assignor.assigned_actives()
        return {tp.partition for tp in found if tp.topic == self._topic}

    @property
    def _topic(self) -> str:
        name: str = self._table.changelog_topic.get_topic_name()
        return name

    def _warn(self) -> None:
        mine, found = self._app.conf.canonical_url, self._app.router.tables_metadata()
        problems = address_problems(mine, found, self._topic, self._table.partitions)
        for problem in (each for each in problems if each not in self._said):
            self._said.add(problem)
            _log.warning("%s", problem)
