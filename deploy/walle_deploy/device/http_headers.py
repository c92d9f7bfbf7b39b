"""What urllib3 does not have: a bound in time on an answer's headers, errors in few words."""

import logging
import socket
from http.client import HTTPException
from threading import Event, Timer
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

# what it warns of names whole addresses, and a signature is not for logs
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)

_SHOWN: Final = 200


def limit_headers(pools: urllib3.PoolManager, headers_s: float) -> None:
    """Have a server that takes too long for its headers cut off.

    Args:
        pools: Not used yet.
        headers_s: Seconds, for all headers of an answer together.
    """
    pools.pool_classes_by_scheme = _pools(headers_s)


def one_line(text: str) -> str:
    """Return what a server sent as it may stand in a log: printable, in one line, not long.

    Args:
        text: As it came.
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_SHOWN]


def words_of(error: BaseException) -> str:
    """Return why a request failed, in the system's words and without names of classes.

    Args:
        error: Of urllib3.
    """
    chain: list[BaseException] = [error]
    while (behind := chain[-1].__cause__ or chain[-1].__context__) and behind not in chain:
        chain.append(behind)
    for each in chain:
        if isinstance(each, OSError) and each.strerror:
            return one_line(each.strerror)
    if any(isinstance(each, (TimeoutError, urllib3.exceptions.TimeoutError)) for each in chain):
        return "no answer in time"
    return one_line(str(chain[-1])) or type(chain[-1]).__name__


def _pools(headers_s: float) -> dict[str, Any]:
    # a server that sends its headers byte by byte keeps every read short: the timer ends it
    def limited(base: Any) -> Any:
        class Limited(base):  # type: ignore[misc]
            def getresponse(self, *args: Any, **kwargs: Any) -> Any:
                cut = Event()
                timer = Timer(headers_s, _shut, (self.sock, cut))
                timer.daemon = True
                timer.start()
                try:
                    answer = super().getresponse(*args, **kwargs)
                except (HTTPException, OSError):
                    if cut.is_set():  # not the server hung up
                        raise TimeoutError from None
                    raise
                finally:
                    timer.cancel()
                if cut.is_set():  # half of the headers look like all of them
                    answer.close()
                    raise TimeoutError
                return answer

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
        return  # it ended meanwhile
