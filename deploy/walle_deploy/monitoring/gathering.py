"""Gathers reports of many requests: those that come while some are stored are stored together.

No request has a thread of its own, so a slow database keeps none from other work.
"""

import asyncio
from collections.abc import Sequence

from walle_deploy.monitoring.monitor import Call, Monitor
from walle_stream.errors import ServiceUnreachableError
from walle_stream.ports import ReportFrame


class ReportGatherer:
    """A monitor's, for one event loop."""

    def __init__(self, monitor: Monitor) -> None:
        """Wait for reports; the monitor stays the caller's."""
        self._monitor = monitor
        self._waiting: list[tuple[Call, asyncio.Future[int]]] = []
        self._storing: asyncio.Task[None] | None = None

    async def receive(self, frames: Sequence[ReportFrame], device: str = "") -> int:
        """See ``Monitor.take``, which this does in a thread, for all that wait at once."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(((frames, device), future))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())
        return await future

    async def _store(self) -> None:
        while self._waiting:
            part, self._waiting = self._waiting, []
            results = await asyncio.to_thread(self._record, [call for call, _ in part])
            for (_, future), result in zip(part, results, strict=True):
                if future.done():
                    continue  # who asked has gone
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        self._storing = None

    def _record(self, calls: list[Call]) -> list[int | Exception]:
        try:
            return [*self._monitor.take_together(calls)]
        except Exception as error:  # noqa: BLE001 - raised where the call was made
            if len(calls) == 1 or isinstance(error, ServiceUnreachableError):
                return [error] * len(calls)
            # what the store does not take must not keep from it what others send
            return [result for call in calls for result in self._record([call])]
