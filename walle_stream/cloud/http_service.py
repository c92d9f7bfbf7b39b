"""A service that is an HTTP server: questions are posted, answers are the replies."""

import json
import socket
import ssl
from collections.abc import Callable
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import Any, Final, NoReturn
from urllib.parse import quote, urlsplit

from walle_stream.clock import monotonic_ms
from walle_stream.cloud.service_pool import REPLY_MAX_BYTES, ServiceCall

_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_GOOD: Final = range(200, 300)
_TOO_MANY: Final = 429
_BROKEN: Final = 500


class HttpService:
    """Client that posts each question over its own connection. Thread-safe.

    HTTP does not number answers. On a persistent connection a server's second answer to one
    question would count as the answer to the next, which may be another device's. Redirects are not
    followed.
    """

    def __init__(self, url: str, timeout_s: float, token: Callable[[], str] | None) -> None:
        """Keep the URL; ``token`` returns the caller's token before each question.

        ``timeout_s`` limits a whole question except for the connection: each address of the
        server's name may take as long.
        """
        parts = urlsplit(url)
        self._host, self._port, self._timeout_s = parts.hostname or "", parts.port, timeout_s
        self._path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        self._secure = ssl.create_default_context() if parts.scheme == "https" else None
        self._token = token

    def __call__(self, call: ServiceCall) -> Any:
        """Return the server's answer; blocks.

        Raises:
            ConnectionError: The server cannot be reached, or answered 429 or 5xx.
            TimeoutError: The server did not answer in time.
            ValueError: The server answered with another status, or no JSON.
        """
        headers = {
            "Connection": "close",
            "Content-Type": "application/json",
            "Idempotency-Key": quote(call.key, safe=_PLAIN),
            "X-Walle-Device": quote(call.device_id, safe=_PLAIN),
            "X-Walle-Task": quote(call.task, safe=_PLAIN),
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token()}"
        body = json.dumps(call.question, ensure_ascii=False).encode()
        due_ms = monotonic_ms() + self._timeout_s * 1000.0
        try:
            response, answer = self._post(body, headers, due_ms)
        except (OSError, HTTPException) as error:
            if isinstance(error, TimeoutError) or monotonic_ms() >= due_ms:
                raise TimeoutError(f"no answer within {self._timeout_s:g} s") from None
            raise ConnectionError(f"{self._host}: {error or type(error).__name__}") from error
        if response.status == _TOO_MANY or response.status >= _BROKEN:
            raise ConnectionError(f"the server answered {response.status} {response.reason}")
        if response.status not in _GOOD:
            raise ValueError(f"the server answered {response.status} {response.reason}")
        if len(answer) > REPLY_MAX_BYTES:
            raise ValueError(f"the answer has more than {REPLY_MAX_BYTES} bytes")
        try:
            return json.loads(answer, parse_constant=_refuse)
        except ValueError as error:
            raise ValueError(f"the answer of {self._host} is no JSON: {error}") from None

    def _post(
        self, body: bytes, headers: dict[str, str], due_ms: float
    ) -> tuple[HTTPResponse, bytes]:
        with closing(self._connection()) as connection:
            connection.connect()
            # a socket's timeout limits each part of an answer, not the whole
            end = Timer((due_ms - monotonic_ms()) / 1000.0, _cut, [connection.sock])
            end.daemon = True
            end.start()
            try:
                connection.request("POST", self._path, body, headers)
                response = connection.getresponse()
                answer = response.read(REPLY_MAX_BYTES + 1)
            finally:
                end.cancel()
        if monotonic_ms() >= due_ms:
            raise TimeoutError  # the answer may be incomplete
        if response.length and len(answer) <= REPLY_MAX_BYTES:
            raise ConnectionResetError("the answer was cut short")
        return response, answer

    def _connection(self) -> HTTPConnection:
        if self._secure is None:
            return HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=self._secure
        )


def _cut(sock: socket.socket) -> None:
    with suppress(OSError):  # closed already
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # TLS's own would drop what is read


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not allowed")
