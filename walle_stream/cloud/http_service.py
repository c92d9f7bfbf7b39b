"""A service that is a server: the question is posted to it, its answer is the reply."""

import json
import logging
import ssl
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final, NoReturn
from urllib.parse import quote, urlsplit

from walle_stream.cloud.service_pool import REPLY_MAX_BYTES, ServiceCall

_log = logging.getLogger(__name__)

_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
_GOOD: Final = range(200, 300)
_TOO_MANY: Final = 429
_BROKEN: Final = 500


class HttpService:
    """Posts questions, over connections that stay open. Thread-safe.

    Nobody follows where an answer leads elsewhere. A second answer to a question would be taken as
    that of the next one: a connection on which one has come is closed, and from then on each
    question has a connection of its own. One that comes while the next question is on its way is
    not seen before that is answered: HTTP gives an answer no number.
    """

    def __init__(self, url: str, timeout_s: float, token: Callable[[], str] | None) -> None:
        """Connect with the first question; ``token``, asked before each, says who asks.

        ``timeout_s`` bounds each wait for the server.
        """
        parts = urlsplit(url)
        self._host, self._port, self._timeout_s = parts.hostname or "", parts.port, timeout_s
        self._path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        self._secure = ssl.create_default_context() if parts.scheme == "https" else None
        self._token = token
        self._idle: list[HTTPConnection] = []
        self._answers_once = True

    def __call__(self, call: ServiceCall) -> Any:
        """Return what the server answered; blocks.

        Raises:
            ConnectionError: It cannot be reached, or answered 429 or 5xx.
            TimeoutError: It did not answer in time.
            ValueError: It answered with another status, or no JSON.
        """
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": quote(call.key, safe=_PLAIN),
            "X-Walle-Device": quote(call.device_id, safe=_PLAIN),
            "X-Walle-Task": quote(call.task, safe=_PLAIN),
        }
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token()}"
        body = json.dumps(call.question, ensure_ascii=False).encode()
        try:
            response, answer = self._post(body, headers)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._timeout_s:g} s") from None
        except (OSError, HTTPException) as error:
            raise ConnectionError(f"{self._host}: {error or type(error).__name__}") from error
        if response.status == _TOO_MANY or response.status >= _BROKEN:
            raise ConnectionError(f"the server answered {response.status} {response.reason}")
        if response.status not in _GOOD:
            raise ValueError(f"the server answered {response.status} {response.reason}")
        if len(answer) > REPLY_MAX_BYTES:
            raise ValueError(f"more than {REPLY_MAX_BYTES} bytes are not allowed")
        return json.loads(answer, parse_constant=_refuse)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        while self._idle:
            self._idle.pop().close()

    def _post(self, body: bytes, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        connection = self._kept()
        is_kept = connection is not None
        connection = connection or self._connection()
        try:
            try:
                response = _sent(connection, self._path, body, headers)
            except ConnectionError:
                if not is_kept:
                    raise
                # the server may have closed it just as it was used again (RFC 9112, 9.3.1)
                connection.close()
                response = _sent(connection, self._path, body, headers)
            answer = response.read(REPLY_MAX_BYTES + 1)
        except BaseException:
            connection.close()
            raise
        if response.isclosed() and not response.will_close and self._answers_once:
            self._idle.append(connection)
        else:
            connection.close()
        if response.length and len(answer) <= REPLY_MAX_BYTES:
            raise ConnectionResetError("the answer was cut short")
        return response, answer

    def _kept(self) -> HTTPConnection | None:
        while self._idle:
            connection = self._idle.pop()
            more = _more(connection)
            if more is None:
                return connection
            connection.close()  # by the server, too, where it sent nothing
            if more and self._answers_once:
                self._answers_once = False
                _log.warning(
                    "%s answers a question twice: each has a connection of its own from now on",
                    self._host,
                )
        return None

    def _connection(self) -> HTTPConnection:
        if self._secure is None:
            return HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=self._secure
        )


def _more(connection: HTTPConnection) -> bytes | None:
    # a byte that came unasked, none where the server has closed; None: neither
    sock = connection.sock
    if sock is None:
        return b""
    timeout_s = sock.gettimeout()
    sock.settimeout(0.0)
    try:
        return bytes(sock.recv(1))
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    except OSError:
        return b""
    finally:
        sock.settimeout(timeout_s)


def _sent(
    connection: HTTPConnection, path: str, body: bytes, headers: dict[str, str]
) -> HTTPResponse:
    connection.request("POST", path, body, headers)
    return connection.getresponse()


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
