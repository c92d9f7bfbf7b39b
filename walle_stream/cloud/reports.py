"""Reports of devices on their way to a release service.

A frame of reports is a row of the table, from the write batch that merged its position until the
service has answered. A killed worker therefore sends it again, features never wait for the service,
and the service drops repeated frames.
"""

import logging
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Event, Thread
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from walle_stream.errors import StoreError
from walle_stream.ports import ReportFrame
from walle_stream.store.keyspace import KeyBatch
from walle_stream.wire.bearer import bearer_headers
from walle_stream.wire.report_batch import REPORTS_PATH, encode_batch

_log = logging.getLogger(__name__)

WAITING_MAX_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of a table's frames that wait for the service; beyond it the oldest are dropped."""

PREFIX: Final = b"\x05"

_SEND_BYTES: Final = 512 * 1024  # proxies often allow 1 MiB
BACKOFF_S: Final = 0.2
"""Pause before the second attempt; doubled for each further one, up to 10 s."""

_BACKOFF_MAX_S: Final = 10.0
_LOOK_S: Final = 0.05
_TIMEOUT_S: Final = 10.0
_FAILED: Final = 300
_REFUSED: Final = frozenset({400, 403, 413})

type Waiting = tuple[bytes, ReportFrame]
"""Key of the row, and the frame."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ReportFrame).decode


class HeldReports:
    """The rows of one table. Its owner holds the table's lock around every call."""

    def __init__(self, rows: Iterable[tuple[bytes, bytes]], max_bytes: int) -> None:
        """Read rows, ascending; ``max_bytes`` limits the bodies that wait."""
        self.waiting: deque[Waiting] = deque((key, _decode(row)) for key, row in rows)
        self.dropped = 0
        """Frames dropped for lack of room since the table was opened."""
        self._last = int.from_bytes(self.waiting[-1][0][1:]) if self.waiting else 0
        self._bytes = sum(len(frame.body) for _, frame in self.waiting)
        self._max_bytes = max_bytes

    def add(self, frames: Iterable[ReportFrame], batch: KeyBatch | None = None) -> None:
        """Append frames (without a batch in memory only); the oldest are dropped for room."""
        for frame in frames:
            self._last += 1
            key = PREFIX + self._last.to_bytes(8)
            if batch is not None:
                batch.put(key, _encode(frame))
            self.waiting.append((key, frame))
            self._bytes += len(frame.body)
        while self._bytes > self._max_bytes:
            self._pop(batch)
            self.dropped += 1

    def first(self, max_bytes: int) -> list[Waiting]:
        """Return the oldest frames up to a limit, at least one if any wait."""
        part: list[Waiting] = []
        for each in self.waiting:
            max_bytes -= len(each[1].body)
            if part and max_bytes < 0:
                break
            part.append(each)
        return part

    def forget(self, part: Sequence[Waiting], batch: KeyBatch | None = None) -> None:
        """Remove frames of ``first``; some may have been dropped meanwhile."""
        while self.waiting and self.waiting[0][0] <= part[-1][0]:
            self._pop(batch)

    def drop_all(self) -> None:
        """Count the waiting frames in memory as dropped."""
        self.dropped += len(self.waiting)
        self.waiting.clear()

    def _pop(self, batch: KeyBatch | None) -> None:
        key, frame = self.waiting.popleft()
        self._bytes -= len(frame.body)
        if batch is not None:
            batch.delete(key)


class ReportTable(Protocol):
    """A table with reports; any thread."""

    def first_reports(self, max_bytes: int) -> Sequence[Waiting]:
        """Return the oldest waiting frames."""

    def forget_reports(self, part: Sequence[Waiting]) -> None:
        """Delete frames that no longer wait."""


class ReportOutlet:
    """Sender of frames to a service, in order for each table, in a thread of its own."""

    def __init__(
        self,
        url: str,
        tables: Callable[[], Iterable[ReportTable]],
        token: Callable[[], str] | None = None,
        backoff_s: float = BACKOFF_S,
    ) -> None:
        """Start the thread; the service's URL has no path.

        ``tables`` returns the open tables. ``token`` returns the sender's token before each
        request. ``backoff_s`` is the pause before the second attempt.
        """
        parts = urlsplit(url)
        self._secure = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/") + REPORTS_PATH
        self._headers: dict[str, str] = {}
        if parts.username is not None:
            user = unquote(f"{parts.username}:{parts.password or ''}").encode()
            self._headers["authorization"] = f"Basic {b64encode(user).decode()}"
        self._tables = tables
        self._token = token
        self._backoff_s = backoff_s
        self._said = ""
        self.sent = self.dropped = 0
        """Frames that the service has accepted or refused since this process started."""
        self._ends = Event()
        self._thread = Thread(target=self._run, name="walle-reports", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; waiting frames stay in their table. Blocks for at most one request."""
        self._ends.set()
        self._thread.join(2 * _TIMEOUT_S)

    def _run(self) -> None:
        pause_s = self._backoff_s
        while not self._ends.is_set():
            is_idle, has_failed = True, False
            for table in self._tables():
                try:
                    part = table.first_reports(_SEND_BYTES)
                    if part:
                        is_idle = False
                        has_failed = not self._send(table, part)
                except StoreError:
                    continue  # the table was given away: its frames belong to the next owner, too
                if has_failed:
                    break
            if has_failed:
                self._ends.wait(pause_s)
                pause_s = min(2 * pause_s, _BACKOFF_MAX_S)
            else:
                pause_s = self._backoff_s
                if is_idle:
                    self._ends.wait(_LOOK_S)

    def _send(self, table: ReportTable, part: Sequence[Waiting]) -> bool:
        status = self._post(part)
        if status in _REFUSED and len(part) > 1:
            # the other frames may be valid
            return all(self._send(table, [each]) for each in part)
        if status not in _REFUSED and not 0 < status < _FAILED:
            return False
        if status in _REFUSED:
            _log.warning("%s refused a frame of reports: status %d", self._host, status)
            self.dropped += 1
        else:
            self._said = ""
            self.sent += len(part)
        table.forget_reports(part)
        return True

    def _post(self, part: Sequence[Waiting]) -> int:
        # the status of the answer; 0 without one
        body = encode_batch(frame for _, frame in part)
        headers = self._headers | bearer_headers(self._token)
        try:
            with closing(self._connection()) as connection:
                connection.request("POST", self._path, body, headers)
                status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            self._say(f"cannot be reached: {error or type(error).__name__}")
            return 0
        if status >= _FAILED and status not in _REFUSED:
            self._say(f"answered {status}")
        return status

    def _connection(self) -> HTTPConnection:
        if self._secure is None:
            return HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        return HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=self._secure)

    def _say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            _log.warning("reports wait: %s %s", self._host, why)
