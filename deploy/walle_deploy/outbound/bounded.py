"""Requests over HTTP to servers that may be slow, unreachable or hostile.

It adds to urllib3 a time limit for an answer's headers, short error texts, and a second attempt
after a kept connection ended.
"""

import logging
import socket
from collections.abc import Mapping
from http.client import HTTPException
from threading import Event, Timer
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

# its warnings contain whole addresses, and logs must not show signatures
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)

_SHOWN: Final = 200


def limit_headers(pools: urllib3.PoolManager, headers_s: float) -> None:
    """Cut off a server that takes longer than ``headers_s`` for the headers of an answer.

    Call it before the first use of the pools.
    """
    pools.pool_classes_by_scheme = _pools(headers_s)


def get_unread(
    pools: urllib3.PoolManager, url: str, headers: Mapping[str, str], timeout: urllib3.Timeout
) -> urllib3.BaseHTTPResponse:
    """Send a GET request and return the answer, its body unread; blocks.

    If a kept connection ends without an answer, the request is sent once more: the server may
    have closed the connection just before (RFC 9112, section 9.3.1).

    Redirects are not followed. The time-out applies to each attempt.

    Raises:
        ProtocolError: The connection ended. Other errors are urllib3's HTTPErrors.
        ValueError: The address is not valid.
    """
    every = {**pools.headers, **headers}

    def sent() -> urllib3.BaseHTTPResponse:
        return pools.request(
            "GET", url, headers=every, preload_content=False, redirect=False, timeout=timeout
        )

    try:
        return sent()
    except urllib3.exceptions.ProtocolError as error:
        # ``Limited`` raises this for a connection that had brought an answer before
        if not isinstance(error.args[-1], ConnectionAbortedError):
            raise
    return sent()


def one_line(text: str) -> str:
    """Return a server's text for a log: printable, in one line, and cut."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_SHOWN]


def words_of(error: BaseException) -> str:
    """Return the reason of a failed request, in the system's words and without class names."""
    chain: list[BaseException] = [error]
    while (behind := chain[-1].__cause__ or chain[-1].__context__) and behind not in chain:
        chain.append(behind)
        if isinstance(behind, OSError):
            break  # errors behind this one were handled during the request
    if isinstance(chain[-1], OSError) and chain[-1].strerror:
        return one_line(chain[-1].strerror)
    if any(isinstance(cause, (TimeoutError, urllib3.exceptions.TimeoutError)) for cause in chain):
        return "no answer in time"
    return one_line(str(chain[-1])) or type(chain[-1]).__name__


def _pools(headers_s: float) -> dict[str, Any]:
    # a server that sends headers byte by byte keeps each read short: only a timer ends it
    def limited(base: Any) -> Any:
        class Limited(base):  # type: ignore[misc]
            answered: socket.socket | None = None

            def getresponse(self, *args: Any, **kwargs: Any) -> Any:
                cut = Event()
                sock = self.sock
                timer = Timer(headers_s, _shut, (sock, cut))
                timer.daemon = True
                timer.start()
                try:
                    response = super().getresponse(*args, **kwargs)
                except (HTTPException, OSError) as error:
                    if cut.is_set():  # the timer ended it, not the server
                        raise TimeoutError from None
                    if isinstance(error, ConnectionError) and self.answered is sock:
                        raise ConnectionAbortedError(*error.args) from None
                    raise
                finally:
                    timer.cancel()
                if cut.is_set():  # cut headers look like complete ones
                    response.close()
                    raise TimeoutError
                self.answered = sock
                return response

        return Limited

    class Plain(urllib3.HTTPConnectionPool):
        ConnectionCls = limited(HTTPConnection)

    class Secure(urllib3.HTTPSConnectionPool):
        ConnectionCls = limited(HTTPSConnection)

    return {"http": Plain, "https": Secure}


def _shut(sock: socket.socket, cut: Event) -> None:
    cut.set()
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the connection ended meanwhile
