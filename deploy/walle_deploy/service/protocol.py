"""HTTP/1.1 with limits: uvicorn's protocol, with the limits that uvicorn itself lacks.

A worker handles its requests one after the other, so a waiting request adds latency to all later
ones. A check that arrives alone is answered as soon as it is read, without a task. The application
answers all other requests. ``BoundedProtocol`` counts the requests of a turn of the loop. Above
``limits.pending``, a request gets 503 and ``Retry-After`` as soon as its head is read, for a
fraction of the cost of a check.

A request whose body is still on its way costs the others nothing and is not counted. Instead,
``limits.bodies`` bounds these requests, so slow senders hinder only other bodies, and no checks.
Further limits bound the bytes of a head, the time for sending a head and a body, the number of
connections, and the log lines that clients can cause.
"""

import asyncio
import logging
import re
from collections import Counter
from typing import Any, Final, override

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from walle_deploy.service.admission import picked
from walle_deploy.service.checks import CHECK_PATH, Checks
from walle_deploy.service.refusals import RefusedRequests
from walle_deploy.service.settings import LimitsSpec, ServiceSpec

_TOO_LONG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)
_TOO_SLOW: Final = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FAILED: Final = (
    b"HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
)
_PIPELINED_MAX: Final = 64
"""Requests that wait on a connection behind a running one; few clients send a second one."""
_CHECK: Final = b"GET %b HTTP/1.1\r\n" % CHECK_PATH.encode()
_HEAD_END: Final = b"\r\n\r\n"
_MORE: Final = re.compile(
    rb"\r\n(?:content-length|transfer-encoding|upgrade|connection|expect):", re.IGNORECASE
)
"""Headers of a request with more than a head, or with more to do than the answer."""
_log = logging.getLogger(__name__)


class _Turn:
    """Requests that a worker answered since its loop last looked for new ones."""

    def __init__(self) -> None:
        self.answered = 0

    def add(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self.answered:
            loop.call_soon(self._end)
        self.answered += 1

    def _end(self) -> None:
        self.answered = 0


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with the limits of a service; one per connection."""

    limits: LimitsSpec
    answers: Counter[str]
    busy: bytes
    """The whole answer to a request when too many others wait."""
    awaited: "set[BoundedProtocol]"
    """Connections of a worker whose request runs and waits for the rest of its body."""
    malformed: RefusedRequests
    check: Checks | None
    """Function that answers a check at once; None leaves checks to the application."""
    looked_at: frozenset[bytes]
    """Names of the headers that ``check`` needs."""
    turn: _Turn

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Make the protocol of a connection; uvicorn calls this."""
        super().__init__(*args, **kwargs)
        self._head_bytes = 0
        """Bytes received of an incomplete head."""
        self._is_in_body = self._is_refused = False
        self._is_alone = False
        """Whether a check arrived alone: it waits for nothing, so it needs no task."""
        self._checked: dict[bytes, bytes] | None = None
        """Headers of a check to answer here once the check is complete."""
        self._deadline: asyncio.TimerHandle | None = None
        self._body_deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]  # asyncio gives any
        if len(self.connections) > self.limits.connections:
            self.answers["no_room"] += 1
            self.transport.close()
        else:
            self._wait_for_head()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._is_in_body = False
        self._follow_body()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        self._is_alone = self._is_whole_check(data)
        if self._is_alone and self._is_full():
            # not even parsed: when the worker is saturated, parsing would take most of the time
            self._shed()
            return
        if not self._is_in_body:
            self._head_bytes += len(data)
        self._parse(data)
        if self._head_bytes > self.limits.header_bytes:
            self._refuse_head()
        elif self._head_bytes and self._deadline is None:
            self._wait_for_head()
        if self._is_in_body or self._body_deadline is not None:
            self._follow_body()

    @override
    def on_headers_complete(self) -> None:
        if self._deadline is not None:
            self._stop_waiting()
        # the exact size, without a body that arrived in the same piece
        is_long = (
            self._head_bytes > self.limits.header_bytes
            and self._exact_head() > self.limits.header_bytes
        )
        self._head_bytes, self._is_in_body = 0, True
        if is_long:
            self._is_refused = True
            self._refuse_head()
        elif self._is_alone and self.check is not None and not self.flow.write_paused:
            # the application answers the rest of the packet, because the loop serves others first
            self._is_refused = self._is_alone = False
            self._checked = picked(self.headers, self.looked_at)
        elif self._is_full() and self._is_idle():
            self._is_refused = True
            self._shed()
        elif len(self.pipeline) >= _PIPELINED_MAX:
            self._is_refused = True
            self.answers["shed"] += 1
            self.transport.close()  # an answer would overtake others
        else:
            self._is_refused = False
            self._unset_keepalive_if_required()  # set by an answer to the previous request
            super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        if not self._is_refused and self._checked is None:
            super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._is_in_body = False
        if self._checked is not None:
            self._answer(self._checked)
            self._checked = None
        elif not self._is_refused:
            super().on_message_complete()
            return
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._is_in_body:
            self._follow_body()

    def _is_full(self) -> bool:
        waiting = len(self.tasks) - len(self.awaited) + self.turn.answered
        return waiting >= self.limits.pending

    def _shed(self) -> None:
        self.answers["shed"] += 1
        if self.flow.write_paused:
            self.transport.abort()  # the client reads no answers, which would all stay in memory
        else:
            self.transport.write(self.busy)

    def _answer(self, headers: dict[bytes, bytes]) -> None:
        assert self.check is not None  # noqa: S101 - it said so
        self.turn.add(self.loop)
        try:
            answer = self.check(headers, self.client)
        except Exception:  # noqa: BLE001 - the edge to one request, as uvicorn has it
            _log.exception("a check failed")
            self.transport.write(_FAILED)
            self.transport.close()
        else:
            self.transport.write(answer.to_bytes(self.server_state.default_headers))

    def _follow_body(self) -> None:
        if not self._is_in_body:
            self.awaited.discard(self)
            if self._body_deadline is not None:
                self._body_deadline.cancel()
                self._body_deadline = None
            return
        if self._body_deadline is None:
            wait_s = self.limits.body_ms / 1_000
            self._body_deadline = self.loop.call_later(wait_s, self._give_up_body)
        # no task runs for a request that was answered early, or is behind another one
        if self._is_refused or self.pipeline or self._is_idle():
            self.awaited.discard(self)
        elif len(self.awaited) < self.limits.bodies:
            self.awaited.add(self)
        elif self not in self.awaited and not self.transport.is_closing():
            self._shed()
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        # like uvicorn's method without its warnings, of which a client could cause any number
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # nothing to upgrade to: the request is answered like any other
        except httptools.HttpParserError:
            self._head_bytes = 0
            if not self.transport.is_closing():
                self.malformed.add(
                    "bad_request", self.client[0] if self.client else "", "it is not HTTP"
                )
                self.send_400_response("this is not an HTTP request")

    def _is_whole_check(self, data: bytes) -> bool:
        return (
            not self._head_bytes
            and not self._is_in_body
            and self._is_idle()
            and data.startswith(_CHECK)
            and data.find(_HEAD_END) == len(data) - len(_HEAD_END)
            and _MORE.search(data) is None
        )

    def _is_idle(self) -> bool:
        # answers to earlier pipelined requests must not be overtaken
        return self.cycle is None or self.cycle.response_complete

    def _exact_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) for name, value in self.headers)

    def _wait_for_head(self) -> None:
        self._deadline = self.loop.call_later(self.limits.request_ms / 1_000, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        self.answers["bad_head"] += 1
        self.transport.close()

    def _give_up_body(self) -> None:
        self._body_deadline = None
        if not self.transport.is_closing():
            self.answers["bad_body"] += 1
            if self.cycle is not None and not (self._is_refused or self.cycle.response_started):
                self.transport.write(_TOO_SLOW)
            self.transport.close()

    def _refuse_head(self) -> None:
        if not self.transport.is_closing():
            self.answers["bad_head"] += 1
            self.transport.write(_TOO_LONG)
            self.transport.close()


def bounded_protocol(
    spec: ServiceSpec,
    answers: Counter[str],
    check: Checks | None = None,
    looked_at: frozenset[bytes] = frozenset(),
) -> type[BoundedProtocol]:
    """Return a worker's protocol class, which answers checks itself if ``check`` is given.

    ``answers`` counts refused requests: ``shed`` (503), ``bad_head`` (431, or closed after a
    timeout), ``bad_body`` (408, after a timeout), ``bad_request`` (400: not HTTP) and ``no_room``
    (closed: too many connections).
    """
    busy = (
        "HTTP/1.1 503 Service Unavailable\r\n"
        f"retry-after: {-(-spec.retry_after_ms // 1_000)}\r\n"
        "cache-control: no-store\r\ncontent-length: 0\r\n\r\n"
    ).encode()
    members = {
        "limits": spec.limits,
        "answers": answers,
        "busy": busy,
        "awaited": set(),
        "malformed": RefusedRequests(answers),
        "check": None if check is None else staticmethod(check),
        "looked_at": looked_at,
        "turn": _Turn(),
    }
    return type("BoundedProtocol", (BoundedProtocol,), members)
