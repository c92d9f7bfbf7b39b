"""Push-then-pull within a business application: its own answers carry what is new.

Walle, section 4.2: devices send business requests anyway, so no request is made for a check.
"""

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from secrets import randbelow
from typing import Any, Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from walle_deploy.model.profile import PROFILE_HEADER
from walle_deploy.model.pushes import PUSH_HEADER, Push
from walle_deploy.service.admission import picked
from walle_deploy.service.refusals import REFUSALS
from walle_deploy.service.service import ReleaseService

_PROFILE: Final = PROFILE_HEADER.encode()
_PUSH: Final = PUSH_HEADER.encode()
PUSH_HEADER_BYTES: Final = 3_072
"""Longest value of the header: proxies take a head of 4 KiB by default (nginx:
``proxy_buffer_size``), and answer 502 to a longer one; the rest of it is the business's."""

_CACHE: Final = (b"cache-control", b"no-store")
_log = logging.getLogger(__name__)


def push_middleware(
    app: ASGIApp,
    service: ReleaseService,
    user_of: Callable[[Any], str] | None = None,
    header_bytes: int = PUSH_HEADER_BYTES,
) -> ASGIApp:
    """Return an ASGI application whose answers carry the header ``walle-push`` where it is due.

    The service runs from the application's start-up to its shutdown, which an ASGI server tells
    this outermost application alone: where another one mounts it, enter ``service.running()`` in
    that one's lifespan. A request without a profile, with a bad one, or before there is a table,
    or by who has not proven who he is (``spec.authentication``), is the application's own affair
    alone; so is one whose ``user_of`` fails. An answer with a push
    is for one device: ``Cache-Control: no-store`` takes the place of what it said.

    Args:
        app: The business application.
        service: Answers the checks.
        user_of: Says of a request's scope who is signed in, empty for nobody; without it files
            of a user's own are not offered.
        header_bytes: Longest value of the header. Tasks that do not fit come with the next
            answers, which begin with any of them; one that does not even fit alone never comes,
            and is logged.
    """

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
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
                push = _push(service, header, scope, user_of)
                value = b""
                if push is not None:
                    value, too_long = encode_push(push, header_bytes, randbelow(1_000))
                    for task in too_long:
                        service.warn_once(
                            f"{task}: no device is told of its new version by {PUSH_HEADER}: its "
                            f"addresses alone are longer than {header_bytes} bytes; raise "
                            "header_bytes, and what proxies take (nginx: proxy_buffer_size)"
                        )
                if value:
                    old = [pair for pair in message.get("headers", ()) if pair[0] != _CACHE[0]]
                    message = {**message, "headers": [*old, _CACHE, (_PUSH, value)]}
            await send(message)

        await app(scope, receive, send_with_push)

    return wrapped


def _push(
    service: ReleaseService, header: bytes, scope: Any, user_of: Callable[[Any], str] | None
) -> Push | None:
    if not service.is_running:
        service.warn_once(
            "no device is told of new versions: the release service was not started, as no "
            "lifespan came here; enter service.running() in that of the application in front"
        )
        return None
    try:
        headers = picked(scope["headers"], service.admission.headers)
        device = service.admission.admit_check(headers, scope.get("client"))
        return service.check(header, user_of(scope) if user_of else "", device)
    except REFUSALS as error:
        _log.debug("no push: %s", error)
    except Exception as error:  # noqa: BLE001 - the answer is the business's
        service.warn_once(f"no push: {type(error).__name__}: {error}")
    return None


def encode_push(push: Push, max_bytes: int, begin: int = 0) -> tuple[bytes, list[str]]:
    """Return a push as a header's value; what does not fit is left for other answers.

    Where not all fit, ``begin`` is the task (and the receipt) to begin with, another one each time:
    one that a device always refuses must not keep the others away.

    Returns:
        base64url of JSON, empty where nothing fits; the tasks that would not even fit alone.
    """
    room = max_bytes * 3 // 4
    if len(msgspec.json.encode(push)) <= room:
        return _base64(push), []
    parts = [
        Push((task,), receipts={k: v for k, v in push.receipts.items() if k == task.task})
        for task in _rotated(push.tasks, begin)
    ]
    alone = push.receipts.keys() - {task.task for task in push.tasks}
    parts += [
        Push((), receipts={name: push.receipts[name]}) for name in _rotated(sorted(alone), begin)
    ]
    bare = fitting = msgspec.structs.replace(push, tasks=(), receipts={})
    too_long = []
    for part in parts:
        grown = _joined(fitting, part)
        if len(msgspec.json.encode(grown)) <= room:
            fitting = grown
        elif len(msgspec.json.encode(_joined(bare, part))) > room:
            too_long += [task.task for task in part.tasks]
    return (b"" if fitting is bare else _base64(fitting)), too_long


def _joined(push: Push, part: Push) -> Push:
    tasks, receipts = push.tasks + part.tasks, push.receipts | part.receipts
    return msgspec.structs.replace(push, tasks=tasks, receipts=receipts)


def _rotated[T](items: Sequence[T], begin: int) -> Sequence[T]:
    begin %= max(len(items), 1)
    return [*items[begin:], *items[:begin]]


def _base64(push: Push) -> bytes:
    return urlsafe_b64encode(msgspec.json.encode(push)).rstrip(b"=")


async def _live(app: ASGIApp, service: ReleaseService, call: tuple[Scope, Receive, Send]) -> None:
    scope, receive, send = call
    startup, has_answered = await receive(), False
    async with service.running():

        async def receive_again() -> Message:
            nonlocal startup
            message, startup = startup, {}
            return message or await receive()

        async def send_and_know(message: Message) -> None:
            nonlocal has_answered
            has_answered = True
            await send(message)

        try:
            await app(scope, receive_again, send_and_know)
        except Exception:
            if has_answered:
                raise
            # it knows no lifespan (ASGI 3: it raises then), and needs none
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
