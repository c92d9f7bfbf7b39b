"""A bound in time on the headers of an answer, which urllib3 does not have."""

import logging
import socket
from threading import Event, Timer
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

# what it warns of names whole addresses, and a signature is not for logs
logging.getLogger("urllib3.connection").setLevel(logging.ERROR)


def limit_headers(pools: urllib3.PoolManager, headers_s: float) -> None:
    """Have a server that takes too long for its headers cut off.

    Args:
        pools: Not used yet.
        headers_s: Seconds, for all headers of an answer together.
    """
    pools.pool_classes_by_scheme = _pools(headers_s)


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
