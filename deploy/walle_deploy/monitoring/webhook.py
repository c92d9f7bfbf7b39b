"""Sends alarms to an address as signed JSON by POST, with retries, in its own thread.

Header ``walle-signature``: ``t=MS,sha256=HEX``, where HEX is HMAC-SHA256 with the shared
secret of the text ``MS`` + ``.`` + the body. A receiver compares it and refuses old times.
Header ``walle-alarm``: the message's id, the same for each attempt.
"""

import hashlib
import hmac
import logging
import threading
from collections import deque
from typing import Final
from urllib.parse import urlsplit

import msgspec
import urllib3

from walle_deploy.monitoring.alarms import AlarmMessage
from walle_deploy.outbound.bounded import limit_headers, words_of
from walle_stream.clock import wall_ms

_log = logging.getLogger(__name__)

SIGNATURE_HEADER: Final = "walle-signature"
ALARM_HEADER: Final = "walle-alarm"
_OK: Final = 300
_REFUSED: Final = range(400, 500)
_TRY_AGAIN: Final = frozenset({408, 425, 429})


class WebhookOptions(msgspec.Struct, frozen=True):
    """Limits of requests to the receiver."""

    timeout_s: float = 5.0
    """Limit for the connection, and for all response headers; the body is not read."""
    attempts: int = 6
    """Attempts for one message; then it is dropped."""
    backoff_s: float = 0.5
    """Time before the second attempt, doubled for each further one."""
    backoff_max_s: float = 30.0
    waiting: int = 1_000
    """Largest number of waiting messages; one more drops the oldest."""


class Webhook:
    """A client of one address. Thread-safe; its own thread sends one message at a time."""

    def __init__(self, url: str, secret: bytes, options: WebhookOptions | None = None) -> None:
        """Start the thread."""
        self.sent = 0
        self.dropped = 0
        self._url = url
        self._secret = secret
        self._options = options or WebhookOptions()
        self._waiting: deque[AlarmMessage] = deque()
        self._changed = threading.Condition()
        self._is_closed = self._is_busy = self._is_over = False
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._live, name="walle-webhook", daemon=True)
        self._thread.start()

    def send(self, message: AlarmMessage) -> None:
        """Queue a message; never blocks."""
        with self._changed:
            self._waiting.append(message)
            if len(self._waiting) > self._options.waiting:
                self._waiting.popleft()
                self.dropped += 1
            self._changed.notify()

    def is_idle(self) -> bool:
        """Return whether every message was delivered or dropped."""
        with self._changed:
            return not self._waiting and not self._is_busy

    def close(self, timeout_s: float = 5.0) -> None:
        """Send waiting messages for at most ``timeout_s``, then drop the rest.

        A hanging attempt may add three times ``WebhookOptions.timeout_s``.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout_s)
        self._ends.set()
        # an attempt may be running: it connects, sends, and waits for the headers
        self._thread.join(3 * self._options.timeout_s)
        with self._changed:
            # the message in hand counts as dropped, whatever becomes of its attempt
            self.dropped += len(self._waiting) + self._is_busy
            self._waiting.clear()
            self._is_over = True

    def _live(self) -> None:
        with urllib3.PoolManager(retries=False, timeout=self._options.timeout_s) as http:
            limit_headers(http, self._options.timeout_s)
            while (message := self._next()) is not None:
                is_sent = self._deliver(http, message)
                with self._changed:
                    self._is_busy = False
                    if not self._is_over:
                        self.sent += is_sent
                        self.dropped += not is_sent

    def _next(self) -> AlarmMessage | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            self._is_busy = bool(self._waiting) and not self._ends.is_set()
            return self._waiting.popleft() if self._is_busy else None

    def _deliver(self, http: urllib3.PoolManager, message: AlarmMessage) -> bool:
        options, backoff_s = self._options, self._options.backoff_s
        for attempt in range(options.attempts):
            if attempt and self._ends.wait(backoff_s):
                break
            backoff_s = min(backoff_s * (2 if attempt else 1), options.backoff_max_s)
            status = self._post(http, message)
            if 0 < status < _OK:
                return True
            if status in _REFUSED and status not in _TRY_AGAIN:
                break  # a retry would be refused too
        # the path may be a secret of the receiver
        host = urlsplit(self._url).hostname
        _log.warning("alarm %s was refused or not delivered to %s: it is dropped", message.id, host)
        return False

    def _post(self, http: urllib3.PoolManager, message: AlarmMessage) -> int:
        body = msgspec.json.encode(message)
        headers = {
            "content-type": "application/json",
            ALARM_HEADER: message.id,
            SIGNATURE_HEADER: sign(self._secret, wall_ms(), body),
        }
        try:
            response = http.request(
                "POST", self._url, body=body, headers=headers, redirect=False, preload_content=False
            )
        except urllib3.exceptions.HTTPError as error:
            _log.info("alarm %s waits: %s", message.id, words_of(error))
            return 0
        response.close()  # the body may have no end
        return response.status


def sign(secret: bytes, time_ms: int, body: bytes) -> str:
    """Return the header ``walle-signature``."""
    digest = hmac.new(secret, b"%d." % time_ms + body, hashlib.sha256).hexdigest()
    return f"t={time_ms},sha256={digest}"
