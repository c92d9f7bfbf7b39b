"""What devices report, from the tunnel's topic to a release service, batch by batch over HTTP.

The port ``ReportSink`` blocks; here everything happens in the worker's event loop, with
Faust's HTTP client. A record of reports is acknowledged when the service has it, so that a
worker that is killed has it again, and the service notices what came twice. Features do not
wait, only their offsets do: for ``hold_s`` at most, since whoever stands still for too long is
taken for stalled. Reports that wait longer are in memory alone, and of these the oldest are
dropped when there are too many.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import ClientError, ClientTimeout
from yarl import URL

from walle_stream.clock import monotonic_ms
from walle_stream.ports import ReportFrame
from walle_stream.wire.bearer import bearer_headers
from walle_stream.wire.report_batch import REPORTS_PATH, encode_batch

_log = logging.getLogger(__name__)

WAITING_MAX_BYTES: Final = 16 * 1024 * 1024
"""Bodies that wait for the service."""

_SEND_BYTES: Final = 512 * 1024  # proxies often let 1 MiB through
_BACKOFF_S: Final = 0.2
_BACKOFF_MAX_S: Final = 10.0
_FAILED: Final = 300
_REFUSED: Final = frozenset({400, 403, 413})


class ReportCounts(msgspec.Struct):
    """What became of frames of reports since this process started."""

    sent: int = 0
    """The service has them."""
    dropped: int = 0
    """It was away for too long, or refused them."""
    waiting: int = 0


class _Waiting:
    __slots__ = ("frame", "since_ms", "taken")

    def __init__(self, frame: ReportFrame) -> None:
        self.frame = frame
        self.since_ms = monotonic_ms()
        self.taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settle(self) -> None:
        if not self.taken.done():
            self.taken.set_result(None)


class ReportOutlet:
    """Posts frames to a service in their order. One event loop."""

    def __init__(
        self,
        url: str,
        hold_s: float,
        max_bytes: int = WAITING_MAX_BYTES,
        timeout_s: float = 10.0,
        token: Callable[[], str] | None = None,
    ) -> None:
        """Begin without frames; nothing is connected before ``run``.

        Args:
            url: Of the service, without a path.
            hold_s: How long a frame's offset waits for the service.
            max_bytes: Of frames that wait.
            timeout_s: Of one request.
            token: Says who sends them, asked before each request; None: nobody says it.
        """
        self.counts = ReportCounts()
        self._url = URL(url.rstrip("/") + REPORTS_PATH)
        self._hold_ms = hold_s * 1000
        self._max_bytes = max_bytes
        self._timeout = ClientTimeout(total=timeout_s)
        self._token = token
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._came = asyncio.Event()
        self._said = ""
        self._is_single = False  # after a refusal: the others of a batch may be good

    def put(self, frame: ReportFrame) -> asyncio.Future[None]:
        """Let a frame wait for its turn; never blocks.

        Returns:
            Done when its record may be acknowledged; never failed.
        """
        added = _Waiting(frame)
        self._waiting.append(added)
        self._bytes += len(frame.body)
        while self._bytes > self._max_bytes:
            self._drop()
        self.counts.waiting = len(self._waiting)
        self._came.set()
        return added.taken

    async def run(self, client: Any) -> None:
        """Send until it is cancelled; what waits then is not acknowledged, and comes again.

        Args:
            client: Session of aiohttp; stays the caller's.
        """
        guard = asyncio.ensure_future(self._release())
        try:
            backoff_s = _BACKOFF_S
            while True:
                await self._wait_for_some()
                if await self._post(client):
                    backoff_s = _BACKOFF_S
                else:
                    await asyncio.sleep(backoff_s)
                    backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
        finally:
            guard.cancel()

    async def _wait_for_some(self) -> None:
        while not self._waiting:
            self._came.clear()
            await self._came.wait()

    async def _release(self) -> None:
        # offsets do not wait longer, the frames do
        while True:
            await asyncio.sleep(self._hold_ms / 1000 / 10)
            now_ms = monotonic_ms()
            for each in self._waiting:
                if now_ms - each.since_ms < self._hold_ms:
                    break
                each.settle()

    async def _post(self, client: Any) -> bool:
        part = self._next()
        body = encode_batch(each.frame for each in part)
        try:
            async with client.post(
                self._url,
                data=body,
                headers=bearer_headers(self._token),
                timeout=self._timeout,
                allow_redirects=False,
            ) as answer:
                status = answer.status
        except (ClientError, TimeoutError, OSError) as error:
            return self._failed(f"cannot be reached: {str(error) or type(error).__name__}")
        if status < _FAILED:
            self._settle(part, is_sent=True)
            self._said, self._is_single = "", False
            return True
        if status not in _REFUSED:
            return self._failed(f"answered {status}")
        if len(part) > 1:
            self._is_single = True
            return True
        _log.warning("%s refused a frame of reports: %d", self._shown, status)
        self._settle(part, is_sent=False)
        return True

    def _failed(self, why: str) -> bool:
        if why != self._said:
            self._said = why
            _log.warning("reports wait: %s %s", self._shown, why)
        return False

    @property
    def _shown(self) -> URL:
        return self._url.with_user(None)

    def _next(self) -> list[_Waiting]:
        part: list[_Waiting] = []
        size_bytes = 0
        for each in self._waiting:
            size_bytes += len(each.frame.body)
            if part and (self._is_single or size_bytes > _SEND_BYTES):
                break
            part.append(each)
        return part

    def _settle(self, part: list[_Waiting], *, is_sent: bool) -> None:
        for each in part:
            if self._waiting and self._waiting[0] is each:
                self._waiting.popleft()
                self._bytes -= len(each.frame.body)
                self.counts.sent += is_sent
                self.counts.dropped += not is_sent
            each.settle()
        self.counts.waiting = len(self._waiting)

    def _drop(self) -> None:
        dropped = self._waiting.popleft()
        self._bytes -= len(dropped.frame.body)
        self.counts.dropped += 1
        dropped.settle()
