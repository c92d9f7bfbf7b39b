"""Runs a Faust app in this process until it is stopped.

An app binds the event loop in which it is made: all of it happens inside ``run_app``.
SIGTERM and SIGINT: no more records are taken, what was processed is committed, the
databases are closed, exit 0; a second signal ends the process at once. Faust sometimes does
not end when it is stopped while it starts or its broker is away, so the time for it is
bounded: whatever was not committed is read again.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import faust
from faust.exceptions import ConsistencyError

from walle_connectors.faust.continuity import anew
from walle_connectors.faust.log_lines import is_away
from walle_connectors.faust.watchdog import Watchdog
from walle_stream.errors import (
    BrokerUnreachableError,
    StopTimeoutError,
    StoreError,
    TunnelError,
    WalleError,
)
from walle_stream.store.rocks import map_rocks_errors

STARTING_STOP_S: Final = 5.0
"""How long a worker that was not ready yet has to end."""

STOP_S: Final = 30.0
"""The same for one that was: it commits what it has processed."""

_SECOND_SIGNAL_EXIT: Final = 130


def run_app(
    make: Callable[[], Awaitable[tuple[Any, Watchdog | None]]], ready: Callable[[Any], None]
) -> int:
    """Make an app and run it until a signal; blocks.

    Args:
        make: Makes it, in the loop in which it runs, and what watches it.
        ready: Called when it has its partitions and recovered its tables.

    Returns:
        The exit code: 0 after a signal.

    Raises:
        WalleError: It cannot be made, or it failed with one of ours.
        BrokerUnreachableError: The broker went away while it began.
        StoreError: Its changelog topics have less than the data directory, or its databases are
            damaged or on a full disk.
        TunnelError: It failed otherwise.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        early = _EarlySignal(loop)
        app, watchdog = loop.run_until_complete(early.guard(make()))
    except asyncio.CancelledError:
        loop.close()
        return 0
    except BaseException:
        loop.close()
        raise
    worker = _Worker(app, loop, ready, early)
    if watchdog is not None:
        app.task(watchdog.run)
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        reason = worker.crash_reason or app.crash_reason
        if reason is None and end.code in {0, None}:
            return 0
        # what ended its start is only in the context
        reason = reason or end.__context__
        error: WalleError = translated(reason, app.conf.id, Path(app.conf.datadir))
        raise error from reason
    return 0


def translated(reason: BaseException | None, group: str, data_dir: Path) -> WalleError:
    """Say what ended an app in one line, with what to do.

    Returns:
        Ours: itself if it is one already.
    """
    if isinstance(reason, WalleError):
        return reason
    if is_away(reason):
        return BrokerUnreachableError(
            f"the broker went away while the cloud side began ({reason}): start it again"
        )
    if isinstance(reason, ConsistencyError):
        return StoreError(
            f"{data_dir} has more of the table than the changelog topics, which lost records or "
            f"were made anew: {anew(group)}"
        )
    if type(reason) is Exception:  # rocksdict's only one
        try:
            with map_rocks_errors(data_dir):
                raise reason
        except StoreError as error:
            return error
    return TunnelError(
        f"the cloud side failed ({reason!r}): what was committed is kept, start it again"
    )


class _EarlySignal:
    # before the worker has its own handlers: nothing is open yet, so ending is enough. One that
    # comes when the app is made, or that something on the way swallowed, is kept for the worker

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.number: signal.Signals | None = None
        self._loop = loop
        self._task: asyncio.Future[Any] | None = None

    async def guard[T](self, made: Awaitable[T]) -> T:
        self._task = task = asyncio.ensure_future(made)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._keep, number)
        return await task

    def _keep(self, number: signal.Signals) -> None:
        self.number = number
        if self._task is not None:
            self._task.cancel()


class _Worker(faust.Worker):  # type: ignore[misc]
    def __init__(
        self,
        app: Any,
        loop: asyncio.AbstractEventLoop,
        ready: Callable[[Any], None],
        early: _EarlySignal,
    ) -> None:
        super().__init__(app, loop=loop, quiet=True, redirect_stdouts=False)
        self._ready = ready
        self._is_ready = False
        self._early = early
        self.spinner = None

    def _setup_logging(self) -> None:
        # the command line set up its own
        pass

    async def on_first_start(self) -> None:
        await super().on_first_start()  # from here on the handlers are the worker's
        if self._early.number is not None:
            self._schedule_shutdown(self._early.number)

    async def on_startup_finished(self) -> None:
        await super().on_startup_finished()
        self._is_ready = True
        self._ready(self.app)

    def _schedule_shutdown(self, number: signal.Signals) -> None:
        if self._signal_stop_time:
            os._exit(_SECOND_SIGNAL_EXIT)
        self.loop.call_later(STOP_S if self._is_ready else STARTING_STOP_S, self._give_up)
        super()._schedule_shutdown(number)

    def _give_up(self) -> None:
        if not self._is_ready:
            os._exit(0)  # it had committed nothing
        sys.stderr.write(
            f"walle: the cloud side did not end within {STOP_S:.0f} s: start it again, what was "
            "not committed is read again\n"
        )
        sys.stderr.flush()
        os._exit(StopTimeoutError.exit_code)
