"""Reports on their way to a monitor in another process: batches of frames over HTTP.

For cloud sides that are not the monitor's own process: ``HttpReportSink`` there,
``read_batch`` behind a path of the release service. ``walle cloud`` has a sender of its own.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import urllib3

from walle_deploy.outbound.bounded import limit_headers, words_of
from walle_stream.errors import EnvelopeError
from walle_stream.ports import ReportFrame
from walle_stream.wire.bearer import bearer_headers
from walle_stream.wire.report_batch import BATCH_MAX_BYTES, REPORTS_PATH, decode_batch, encode_batch
from walle_stream.wire.reports import REPORTS_MAX_BYTES, claimed_bytes

_log = logging.getLogger(__name__)

OWN_MAX_BYTES: Final = 1024 * 1024
"""Largest batch of a device that reports for itself: it has one device's counts."""

_OWN_FRAMES_MAX: Final = 1_000
_INFLATED: Final = 4
"""So many times as long a batch may be inflated."""
_SEND_BYTES: Final = 512 * 1024  # proxies often let 1 MiB through
_TIMEOUT_S: Final = 10.0
_FAILED: Final = 300
_UNPROVEN: Final = 401
_REFUSED: Final = {400, 403, 413}


def read_batch(batch: bytes, device: str = "") -> list[ReportFrame]:
    """Return the frames of a batch, of which nothing is counted yet.

    A device may speak for itself alone; who is none, for any.

    Raises:
        EnvelopeError: It is no batch, or too large, also inflated, or has too many frames for one
            device.
    """
    frames = [ReportFrame(*frame) for frame in decode_batch(batch)]
    most = _INFLATED * (OWN_MAX_BYTES if device else BATCH_MAX_BYTES)
    claimed = [claimed_bytes(frame.body) for frame in frames]  # longer ones are not decoded
    if (size := sum(length for length in claimed if length <= REPORTS_MAX_BYTES)) > most:
        raise EnvelopeError(f"a batch of {size} bytes inflated: at most {most}")
    if device and len(frames) > _OWN_FRAMES_MAX:
        raise EnvelopeError(
            f"a batch of {len(frames)} frames of device {device!r}: at most {_OWN_FRAMES_MAX}"
        )
    return frames


class HttpReportSink:
    """A ``ReportSink`` that sends frames to a service; its own thread does.

    Features never wait for it: what does not fit into its memory while the service is away
    is dropped, the oldest first, and counted. So is what a dying process had not sent.
    """

    def __init__(
        self,
        url: str,
        max_bytes: int = 16 * 1024 * 1024,
        backoff_s: float = 0.2,
        token: Callable[[], str] | None = None,
    ) -> None:
        """Start its thread; ``url`` has no path.

        ``max_bytes`` are of frames that wait. ``backoff_s`` is before the second attempt, doubled
        for each further one, up to 10 s. ``token`` is asked before each request.
        """
        self.dropped = 0
        """Frames, because the service was away for too long or refused them."""
        self._url = url.rstrip("/") + REPORTS_PATH
        self._max_bytes = max_bytes
        self._backoff_s = backoff_s
        self._token = token
        self._said = 0
        self._waiting: deque[ReportFrame] = deque()
        self._waiting_bytes = 0
        self._alone = 0  # so many are sent one by one: one of them was refused
        self._changed = threading.Condition()
        self._is_closed = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._live, name="walle-reports", daemon=True)
        self._thread.start()

    def take(self, frames: Sequence[ReportFrame]) -> None:
        """Let frames wait for their turn; see ``ReportSink.take``. Never blocks."""
        with self._changed:
            for frame in frames:
                self._waiting.append(frame)
                self._waiting_bytes += len(frame.body)
            while self._waiting_bytes > self._max_bytes:
                self._waiting_bytes -= len(self._waiting.popleft().body)
                self.dropped += 1
            self._changed.notify()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what waits, for so long at most; then what is left is dropped, and counted."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        self._ends.set()
        self._thread.join()
        with self._changed:
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0

    def _live(self) -> None:
        with urllib3.PoolManager(retries=False, timeout=_TIMEOUT_S) as http:
            limit_headers(http, _TIMEOUT_S)
            backoff_s = self._backoff_s
            while (part := self._next()) and not self._ends.is_set():
                try:
                    response = http.request(
                        "POST",
                        self._url,
                        body=encode_batch(part),
                        headers=bearer_headers(self._token),
                        preload_content=False,
                    )
                except urllib3.exceptions.HTTPError as error:
                    _log.info("reports wait: %s: %s", self._url, words_of(error))
                else:
                    status = response.status
                    response.close()  # what else it has to say may have no end
                    if status in _REFUSED and len(part) > 1:
                        self._alone = len(part)  # the others are good
                        continue
                    self._say(status)
                    if status < _FAILED or status in _REFUSED:
                        self._settle(part, is_refused=status >= _FAILED)
                        backoff_s = self._backoff_s
                        continue
                self._ends.wait(backoff_s)
                backoff_s = min(2 * backoff_s, 10.0)

    def _say(self, status: int) -> None:
        if status >= _FAILED and status not in _REFUSED and status != self._said:
            # a token that is none keeps all of them waiting until somebody gives another
            level = logging.WARNING if status == _UNPROVEN else logging.INFO
            _log.log(level, "reports wait: %s answered %d", self._url, status)
        self._said = status

    def _next(self) -> list[ReportFrame]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            part: list[ReportFrame] = []
            size_bytes = 0
            for frame in self._waiting:
                size_bytes += len(frame.body)
                if part and (size_bytes > _SEND_BYTES or self._alone):
                    break
                part.append(frame)
            return part

    def _settle(self, part: list[ReportFrame], *, is_refused: bool) -> None:
        if is_refused:
            _log.warning("%s refused %d frames of reports", self._url, len(part))
        with self._changed:
            self._alone = max(0, self._alone - len(part))
            self.dropped += is_refused * len(part)
            sent = set(part)
            while self._waiting and self._waiting[0] in sent:
                self._waiting_bytes -= len(self._waiting.popleft().body)
