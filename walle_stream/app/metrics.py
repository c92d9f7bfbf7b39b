"""``/metrics``, ``/healthz`` and ``/readyz`` of a run, for ``--metrics ADDR``.

Prometheus text format. The server binds loopback unless the address names a
host, runs in a thread of its own and only reads.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final, Protocol

import msgspec

from walle_stream.actors.partition import PartitionStatus
from walle_stream.errors import ActorError, MetricsAddressError
from walle_stream.wire.rows import Counters

_log = logging.getLogger(__name__)

_LOOPBACK: Final = "127.0.0.1"
_BUCKETS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000)


class ObservedRun(Protocol):
    """What the server reads of a run."""

    is_ready: bool

    def status(self) -> list[PartitionStatus]:
        """Return the figures of all partitions."""
        ...


def serve_metrics(stack: ExitStack, address: str, run: ObservedRun) -> int:
    """Serve until the stack is closed.

    Args:
        stack: Gets the server's closing.
        address: ``:9090``, ``9090`` or ``host:9090``; port 0 takes a free one.
        run: What is observed.

    Returns:
        The port.

    Raises:
        MetricsAddressError: The address is malformed or taken.
    """
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        raise MetricsAddressError(f"--metrics {address!r}: expected HOST:PORT or :PORT")
    handler = type("Handler", (_Handler,), {"run": run})
    try:
        server = ThreadingHTTPServer((host or _LOOPBACK, int(port)), handler)
    except (OSError, OverflowError) as error:
        raise MetricsAddressError(
            f"--metrics {address!r} cannot be served ({error}): choose another port"
        ) from error
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    bound = int(server.server_address[1])
    _log.info("metrics: http://%s:%d/metrics", server.server_address[0], bound)
    return bound


def render_metrics(statuses: list[PartitionStatus]) -> str:
    """Return the figures in Prometheus' text format.

    Args:
        statuses: Of all partitions.
    """
    return "\n".join(_lines(statuses)) + "\n"


def _lines(statuses: list[PartitionStatus]) -> Iterator[str]:
    total = Counters()
    for status in statuses:
        total.add(status.counters)
    for name, value in msgspec.structs.asdict(total).items():
        yield f"# HELP walle_{name}_total Cumulative for the data directory: {name}."
        yield f"# TYPE walle_{name}_total counter"
        yield f"walle_{name}_total {value}"
    gauges = {
        "active_devices": "Devices in memory.",
        "outbox_bytes": "Frames without acknowledgement, bytes.",
        "watermark_ms": "Ingest watermark, epoch milliseconds.",
    }
    for name, text in gauges.items():
        yield f"# HELP walle_{name} {text}"
        yield f"# TYPE walle_{name} gauge"
        for status in statuses:
            yield f'walle_{name}{{partition="{status.number}"}} {getattr(status, name)}'
    yield "# HELP walle_exit_to_commit_ms From the delivery of a page exit to its commit."
    yield "# TYPE walle_exit_to_commit_ms histogram"
    count = sum(status.latencies.count for status in statuses)
    for bound in _BUCKETS_MS:
        below = sum(status.latencies.count_below(bound) for status in statuses)
        yield f'walle_exit_to_commit_ms_bucket{{le="{bound}"}} {below}'
    yield f'walle_exit_to_commit_ms_bucket{{le="+Inf"}} {count}'
    yield f"walle_exit_to_commit_ms_sum {sum(status.latencies.sum_ms for status in statuses):.3f}"
    yield f"walle_exit_to_commit_ms_count {count}"


class _Handler(BaseHTTPRequestHandler):
    run: ObservedRun

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer(200, "ok\n")
        elif self.path == "/readyz":
            self._answer(200, "ready\n") if self.run.is_ready else self._answer(503, "starting\n")
        elif self.path == "/metrics":
            try:
                self._answer(200, render_metrics(self.run.status()))
            except (ActorError, TimeoutError) as error:
                self._answer(503, f"{error}\n")
        else:
            self._answer(404, "paths: /metrics /healthz /readyz\n")

    def log_message(self, *_: object) -> None:
        """Log nothing: scrapes come every few seconds."""

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
