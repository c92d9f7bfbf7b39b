"""The server of ``/metrics``, ``/healthz`` and ``/readyz``.

Invariants: it only reads; it binds the loopback address unless the address
names a host; a slow or broken client holds nothing but a thread of its own, for
at most five seconds. Place in the data flow: beside it.
"""

import logging
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET, AF_INET6
from socketserver import TCPServer
from threading import Thread
from typing import Final, override
from urllib.parse import urlsplit

from walle_stream.errors import ActorError, MetricsAddressError

_LOOPBACK: Final = "127.0.0.1"
_CLIENT_TIMEOUT_S: Final = 5.0
_POLL_S: Final = 0.1
_log = logging.getLogger(__name__)


class MetricsServer:
    """Serves ``/metrics``, ``/healthz`` and ``/readyz`` until :meth:`close`."""

    def __init__(
        self, address: str, render: Callable[[], str], is_ready: Callable[[], bool]
    ) -> None:
        """Bind and start; blocks only for the binding.

        The address is ``:9090``, ``9090``, ``host:9090`` or ``[::1]:9090``; without a host the
        loopback address, port 0 takes a free one. The functions are called in the clients' threads;
        an ActorError or TimeoutError of ``render`` is answered with status 503.

        Raises:
            MetricsAddressError: The address is malformed, taken or not ours.
        """
        host, port = _parse_address(address)
        handler = type("_BoundHandler", (_Handler,), {"render": render, "is_ready": is_ready})
        # the class is asked for its family before there is an instance
        server_class = _Server6 if ":" in host else _Server
        try:
            self._server = server_class((host, port), handler)
        except OSError as error:
            raise MetricsAddressError(
                f"--metrics {address!r} cannot be served ({error}): choose another port"
            ) from error
        self.host = host
        self.port = int(self._server.server_address[1])
        """The port that is bound; never 0."""
        self._thread = Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving and free the port; a second call does nothing."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


class _Server(ThreadingHTTPServer):
    address_family = AF_INET
    daemon_threads = True
    # two runs on one port would each get some of the scrapes
    allow_reuse_port = False

    @override
    def server_bind(self) -> None:
        # HTTPServer asks the name service for our own name, which may take seconds
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "walle", int(self.server_address[1])

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        _log.debug("metrics client %s went away", client_address, exc_info=True)


class _Server6(_Server):
    address_family = AF_INET6


class _Handler(BaseHTTPRequestHandler):
    render: Callable[[], str]
    is_ready: Callable[[], bool]
    timeout = _CLIENT_TIMEOUT_S
    server_version = "walle"
    sys_version = ""

    def do_GET(self) -> None:
        # through the class: a function kept there must not become a method
        cls = type(self)
        match urlsplit(self.path).path:
            case "/healthz":
                self._answer(200, "ok\n")
            case "/readyz":
                self._answer(200, "ready\n") if cls.is_ready() else self._answer(503, "starting\n")
            case "/metrics":
                try:
                    text = cls.render()
                except (ActorError, TimeoutError) as error:
                    self._answer(503, f"{error}\n")
                else:
                    self._answer(200, text)
            case _:
                self._answer(404, "paths: /metrics /healthz /readyz\n")

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    @override
    def log_message(self, *_: object) -> None:
        """Log nothing: scrapes come every few seconds."""

    def _answer(self, status: int, text: str) -> None:
        body = text.encode(errors="backslashreplace")
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    is_bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not (port.isascii() and port.isdigit()) or int(port) > 0xFFFF or is_bare_v6:  # noqa: PLR2004 - the highest port
        raise MetricsAddressError(
            f"--metrics {address!r}: expected PORT, :PORT, HOST:PORT or [ADDRESS]:PORT, "
            "a port is 0 to 65535"
        )
    return host.strip("[]") or _LOOPBACK, int(port)
