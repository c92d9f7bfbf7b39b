"""Push-then-pull within a business application: its own answers carry what is new.

Walle, section 4.2: devices send business requests anyway, so no request is made for a check.
"""

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final

import msgspec

from walle_deploy.model.profile import PROFILE_HEADER, PROFILE_MAX_BYTES
from walle_deploy.model.pushes import PUSH_HEADER, Push
from walle_deploy.service.asgi import App, Message, Receive, Send
from walle_deploy.service.service import ReleaseService
from walle_stream.errors import ProfileError, ServiceUnreachableError

_PROFILE: Final = PROFILE_HEADER.encode()
_PUSH: Final = PUSH_HEADER.encode()
_CACHE: Final = (b"cache-control", b"no-store")
_log = logging.getLogger(__name__)


def push_middleware(
    app: App, service: ReleaseService, user_of: Callable[[Any], str] | None = None
) -> App:
    """Return an ASGI application whose answers carry the header ``walle-push`` where it is due.

    The service runs from the application's start-up to its shutdown, which an ASGI server tells
    this outermost application alone: where another one mounts it, enter ``service.running()`` in
    that one's lifespan. A request without a profile, with a bad one, or before there is a table,
    is the application's own affair alone; so is one whose ``user_of`` fails. An answer with a push
    is for one device: ``Cache-Control: no-store`` takes the place of what it said.

    Args:
        app: The business application.
        service: Answers the checks.
        user_of: Says of a request's scope who is signed in, empty for nobody; without it files
            of a user's own are not offered.
    """

    async def wrapped(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(app, service, (scope, receive, send))
            return
        header = b""
        if scope["type"] == "http":
            header = next((value for name, value in scope["headers"] if name == _PROFILE), b"")
        if not header:
            await app(scope, receive, send)
            return

        async def send_with_push(message: Message) -> None:
            if message["type"] == "http.response.start":
                # when the answer begins: the application has found out who is signed in by now
                value = _push_value(service, header, scope, user_of)
                if value:
                    old = [each for each in message.get("headers", ()) if each[0] != _CACHE[0]]
                    message = {**message, "headers": [*old, _CACHE, (_PUSH, value)]}
            await send(message)

        await app(scope, receive, send_with_push)

    return wrapped


def _push_value(
    service: ReleaseService, header: bytes, scope: Any, user_of: Callable[[Any], str] | None
) -> bytes:
    if not service.is_running:
        service.warn_once(
            "no device is told of new versions: the release service was not started, as no "
            "lifespan came here; enter service.running() in that of the application in front"
        )
        return b""
    try:
        push = service.check(header, user_of(scope) if user_of else "")
        return encode_push(push) if push is not None else b""
    except (ProfileError, ServiceUnreachableError) as error:
        _log.debug("no push: %s", error)
    except Exception as error:  # noqa: BLE001 - the answer is the business's
        service.warn_once(f"no push: {type(error).__name__}: {error}")
    return b""


def encode_push(push: Push) -> bytes:
    """Return a push as a header's value; what does not fit is left for the next answer.

    Args:
        push: Not empty.

    Returns:
        base64url of JSON; empty where not even the first task fits.
    """
    tasks = push.tasks
    while tasks:
        made = msgspec.json.encode(msgspec.structs.replace(push, tasks=tasks))
        value = urlsafe_b64encode(made).rstrip(b"=")
        if len(value) <= PROFILE_MAX_BYTES:
            return value
        # in proportion, and always fewer
        tasks = tasks[: len(tasks) * PROFILE_MAX_BYTES // len(value)]
    return b""


async def _live(app: App, service: ReleaseService, call: tuple[Any, Receive, Send]) -> None:
    scope, receive, send = call
    startup, said = await receive(), False
    async with service.running():

        async def receive_again() -> Message:
            nonlocal startup
            message, startup = startup, {}
            return message or await receive()

        async def send_and_know(message: Message) -> None:
            nonlocal said
            said = True
            await send(message)

        try:
            await app(scope, receive_again, send_and_know)
        except Exception:
            if said:
                raise
            # it knows no lifespan (ASGI 3: it raises then), and needs none
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
