"""The server of ``/metrics``, ``/healthz`` and ``/readyz``.

Invariants: The server only reads. It binds the loopback address unless the address names a host. A
slow or broken client blocks only its own thread, for at most five seconds.
"""

from collections.abc import Callable
from email.message import Message
from typing import Final
from urllib.parse import SplitResult

from walle_stream.errors import ActorError, MetricsAddressError
from walle_stream.wire.pages import Page, PageServer

_LOOPBACK: Final = "127.0.0.1"
_CLIENT_TIMEOUT_S: Final = 5.0


def open_metrics_server(
    address: str, render: Callable[[], str], is_ready: Callable[[], bool]
) -> PageServer:
    """Serve ``/metrics``, ``/healthz`` and ``/readyz`` until closed; only the bind blocks.

    The address is ``:9090``, ``9090``, ``host:9090`` or ``[::1]:9090``. Without a host it is the
    loopback address; port 0 takes a free port. The functions are called in the clients' threads. An
    ActorError or TimeoutError of ``render`` is answered with status 503.

    Raises:
        MetricsAddressError: The address is malformed, in use, or not of this machine.
    """

    def page(asked: SplitResult, _: Message) -> Page:
        match asked.path:
            case "/healthz":
                status, text = 200, "ok\n"
            case "/readyz":
                status, text = (200, "ready\n") if is_ready() else (503, "starting\n")
            case "/metrics":
                try:
                    status, text = 200, render()
                except (ActorError, TimeoutError) as error:
                    status, text = 503, f"{error}\n"
            case _:
                status, text = 404, "paths: /metrics /healthz /readyz\n"
        return Page(status, text.encode(errors="backslashreplace"))

    host, port = _parse_address(address)
    try:
        return PageServer(host, port, page, client_s=_CLIENT_TIMEOUT_S, name="metrics")
    except OSError as error:
        raise MetricsAddressError(
            f"--metrics {address!r} cannot be served ({error}): choose another port"
        ) from error


def _parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    is_bare_v6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not (port.isascii() and port.isdigit()) or int(port) > 0xFFFF or is_bare_v6:  # noqa: PLR2004 - the highest port
        raise MetricsAddressError(
            f"--metrics {address!r}: expected PORT, :PORT, HOST:PORT or [ADDRESS]:PORT, "
            "with a port from 0 to 65535"
        )
    return host.strip("[]") or _LOOPBACK, int(port)
