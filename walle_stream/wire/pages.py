"""A small HTTP server for read-only pages (metrics, health, look-ups), one thread per client."""

from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from socketserver import TCPServer
from threading import Thread
from typing import Final, NamedTuple, override
from urllib.parse import SplitResult, urlsplit

FIGURES_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of metrics for Prometheus."""

_POLL_S: Final = 0.1


class Page(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    kind: str = FIGURES_TYPE


type Pages = Callable[[SplitResult, Message], Page]
"""Answers a URL with the request's headers, in the client's thread."""


class PageServer:
    """Server of pages until it is closed; a slow or broken client holds only its own thread."""

    def __init__(self, host: str, port: int, pages: Pages, *, client_s: float, name: str) -> None:
        """Bind and start; blocks only for the binding.

        Port 0 takes a free port. A client may be silent for ``client_s`` seconds.

        Raises:
            OSError: The address is in use, or belongs to another machine.
            UnicodeError: The host is not a valid name.
            OverflowError: The port is out of range.
        """
        handler = type("_Bound", (_Handler,), {"pages": pages, "timeout": client_s})
        # a class per family, because the family is read before an instance exists
        self._server = (_Server6 if ":" in host else _Server)((host, port), handler)
        self.host = host
        self.port = int(self._server.server_address[1])
        """The bound port; never 0."""
        self._thread = Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name=name, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port; a second call does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # two processes on one port would each get a part of the requests
    allow_reuse_port = False
    request_queue_size = 128

    @override
    def server_bind(self) -> None:
        # HTTPServer would look up our own name, which may take seconds
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "walle", int(self.server_address[1])

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error, because a client closed its connection."""


class _Server6(_Server):
    address_family = AF_INET6


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    server_version = "walle"
    sys_version = ""

    def do_GET(self) -> None:
        # through the class, so that the function does not become a method
        page = type(self).pages(urlsplit(self.path), self.headers)
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    do_HEAD = do_GET  # noqa: N815 - the base class's name

    @override
    def log_message(self, *_: object) -> None:
        """Log nothing, because requests come all the time."""
