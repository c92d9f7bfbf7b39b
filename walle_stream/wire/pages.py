"""A small HTTP server for pages that only read: figures, health, look-ups. One thread a client."""

from collections.abc import Callable
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from socketserver import TCPServer
from threading import Thread
from typing import Final, NamedTuple, override
from urllib.parse import SplitResult, urlsplit

FIGURES_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of figures, as Prometheus asks for them."""

_POLL_S: Final = 0.1


class Page(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    kind: str = FIGURES_TYPE


type Pages = Callable[[SplitResult, Message], Page]
"""Answers what was asked, with the request's headers; in the client's thread."""


class PageServer:
    """Serves pages until closed. A slow or broken client holds a thread of its own alone."""

    def __init__(self, host: str, port: int, pages: Pages, *, client_s: float, name: str) -> None:
        """Bind and start; blocks only for the binding.

        Port 0 takes a free one. ``client_s`` is how long a client may be silent.

        Raises:
            OSError: The address is taken, or not of this machine.
            UnicodeError: The host is no name.
            OverflowError: There is no such port.
        """
        handler = type("_Bound", (_Handler,), {"pages": pages, "timeout": client_s})
        # the class is asked for its family before there is an instance
        self._server = (_Server6 if ":" in host else _Server)((host, port), handler)
        self.host = host
        self.port = int(self._server.server_address[1])
        """The port that is bound; never 0."""
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
    # two processes on one port would each get some of the questions
    allow_reuse_port = False
    request_queue_size = 128

    @override
    def server_bind(self) -> None:
        # HTTPServer asks the name service for our own name, which may take seconds
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "walle", int(self.server_address[1])

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client went away."""


class _Server6(_Server):
    address_family = AF_INET6


class _Handler(BaseHTTPRequestHandler):
    pages: Pages
    server_version = "walle"
    sys_version = ""

    def do_GET(self) -> None:
        # through the class: a function kept there must not become a method
        page = type(self).pages(urlsplit(self.path), self.headers)
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    @override
    def log_message(self, *_: object) -> None:
        """Log nothing: requests come all the time."""
