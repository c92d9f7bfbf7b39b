"""The service over HTTP: ``/v1/check`` by a plain ASGI function, the rest by Starlette.

A check is ``GET /v1/check`` with the header ``walle-profile``; the answer is 204 when nothing
is new, else 200 with a ``Push`` as JSON; 400 for a header that is no profile, 413 for a body
that is too long, 503 with ``Retry-After`` while there is no table.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from walle_deploy.model.profile import PROFILE_HEADER
from walle_deploy.model.pushes import PUSH_TYPE
from walle_deploy.service.admin import admin_app
from walle_deploy.service.service import ReleaseService
from walle_stream.errors import ProfileError, ServiceUnreachableError

type Message = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[Message]]
type Send = Callable[[Message], Awaitable[None]]
type App = Callable[[Any, Receive, Send], Awaitable[None]]

CHECK_PATH: Final = "/v1/check"

_PROFILE: Final = PROFILE_HEADER.encode()
_PUSH_TYPE: Final = PUSH_TYPE.encode()
_NO_STORE: Final = (b"cache-control", b"no-store")
_NOTHING_NEW: Final[Message] = {
    "type": "http.response.start",
    "status": 204,
    "headers": [_NO_STORE],
}
_END: Final[Message] = {"type": "http.response.body", "body": b""}
_encode: Final = msgspec.json.Encoder().encode


def service_app(service: ReleaseService) -> App:
    """Return the ASGI application of a service.

    Args:
        service: Runs from the application's start-up to its shutdown.
    """
    admin = admin_app(service)
    user_header = service.spec.user_header.encode()
    body_max = service.spec.limits.body_bytes
    # these have bounds of their own
    others = frozenset(route.path for route in service.routes)
    retry_s = str(-(-service.spec.retry_after_ms // 1_000)).encode()

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(service, receive, send)
            return
        profile, user, length = _read(scope["headers"], user_header)
        if length > body_max and scope["path"] not in others:
            await _answer(send, 413, {"error": f"a body of more than {body_max} bytes"}, close=True)
        elif scope["path"] == CHECK_PATH:
            await check(send, profile, user)
        else:
            await admin(scope, receive, send)

    async def check(send: Send, profile: bytes, user: bytes) -> None:
        try:
            push = service.check(profile, user.decode("utf-8", "replace"))
        except ProfileError as error:
            await _answer(send, 400, {"error": error.message})
        except ServiceUnreachableError as error:
            await _answer(send, 503, {"error": error.message}, retry_s)
        else:
            if push is None:
                await send(_NOTHING_NEW)
                await send(_END)
            else:
                await _answer(send, 200, push, kind=_PUSH_TYPE)

    return app


async def _live(service: ReleaseService, receive: Receive, send: Send) -> None:
    async with AsyncExitStack() as stack:
        await receive()
        await stack.enter_async_context(service.running())
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _answer(
    send: Send,
    status: int,
    value: Any,
    retry_s: bytes = b"",
    *,
    close: bool = False,
    kind: bytes = b"application/json",
) -> None:
    body = _encode(value)
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        _NO_STORE,
    ]
    if retry_s:
        headers.append((b"retry-after", retry_s))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _read(headers: Iterable[tuple[bytes, bytes]], user_header: bytes) -> tuple[bytes, bytes, int]:
    """Return the profile, the user that a gateway vouches for, and the body's stated length."""
    profile, user, length = b"", b"", 0
    for name, value in headers:
        if name == _PROFILE:
            profile = value
        elif name == b"content-length":
            length = int(value) if value.isdigit() else 0
        elif name == user_header:
            user = value
    return profile, user, length
