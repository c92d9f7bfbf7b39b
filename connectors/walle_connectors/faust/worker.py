"""Runs a Faust app in this process until it is stopped.

An app binds the event loop in which it is made: all of it happens inside ``run_app``.
SIGTERM and SIGINT: no more records are taken, what was processed is committed, the
databases are closed, exit 0; a second signal ends the process at once.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import faust
from aiokafka.errors import KafkaConnectionError
from faust.exceptions import ConsistencyError

from walle_connectors.faust.continuity import anew
from walle_connectors.faust.watchdog import Watchdog
from walle_stream.errors import BrokerUnreachableError, StoreError, TunnelError, WalleError

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
        StoreError: Its changelog topics have less than the data directory.
        TunnelError: It failed otherwise.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        app, watchdog = loop.run_until_complete(_until_signal(loop, make()))
    except asyncio.CancelledError:
        loop.close()
        return 0
    except BaseException:
        loop.close()
        raise
    worker = _Worker(app, loop, ready)
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
        if isinstance(reason, KafkaConnectionError):
            raise BrokerUnreachableError(
                f"the broker went away while the cloud side began ({reason}): start it again"
            ) from reason
        if isinstance(reason, ConsistencyError):
            raise StoreError(
                "the data directory has more of the table than the changelog topics, which lost "
                f"records or were made anew: {anew(app.conf.id)}"
            ) from reason
        if isinstance(reason, WalleError):
            raise reason from None
        raise TunnelError(
            f"the cloud side failed ({reason!r}): what was committed is kept, start it again"
        ) from reason
    return 0


async def _until_signal[T](loop: asyncio.AbstractEventLoop, made: Awaitable[T]) -> T:
    # before the worker has its own handlers: nothing is open yet, so ending is enough
    task = asyncio.ensure_future(made)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    return await task


class _Worker(faust.Worker):  # type: ignore[misc]
    def __init__(
        self, app: Any, loop: asyncio.AbstractEventLoop, ready: Callable[[Any], None]
    ) -> None:
        super().__init__(app, loop=loop, quiet=True, redirect_stdouts=False)
        self._ready = ready
        self.spinner = None

    def _setup_logging(self) -> None:
        # the command line set up its own
        pass

    async def on_startup_finished(self) -> None:
        await super().on_startup_finished()
        self._ready(self.app)

    def _schedule_shutdown(self, number: signal.Signals) -> None:
        if self._signal_stop_time:
            os._exit(_SECOND_SIGNAL_EXIT)
        super()._schedule_shutdown(number)


def set_up_logging(level: str) -> None:
    """Write log lines to stderr, Faust's of the level warning and above.

    Args:
        level: Of our own lines: debug, info, warning, error.
    """
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("walle_connectors").setLevel(level.upper())
