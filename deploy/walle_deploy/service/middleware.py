"""Push-then-pull within a business application: its own answers carry the push.

Devices send business requests anyway, so a check needs no request of its own (Walle, section 4.2).
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
"""Longest value of the header. By default proxies accept a head of 4 KiB (nginx:
``proxy_buffer_size``) and answer 502 to a longer one. The business's headers need the rest."""

_CACHE: Final = (b"cache-control", b"no-store")
_log = logging.getLogger(__name__)


def push_middleware(
    app: ASGIApp,
    service: ReleaseService,
    user_of: Callable[[Any], str] | None = None,
    header_bytes: int = PUSH_HEADER_BYTES,
) -> ASGIApp:
    """Return an ASGI application whose answers carry the header ``walle-push`` when needed.

    The service starts and stops with the application. An ASGI server notifies only the outermost
    application. If another application mounts this one, enter ``service.running()`` in the
    lifespan of the outermost application.

    An answer has no push if the request's profile is missing or wrong, if no table is loaded, or
    if the device has not proven its identity (``spec.authentication``). The same holds if
    ``user_of`` fails. An answer with a push is for one device: its header ``Cache-Control:
    no-store`` replaces the application's.

    Args:
        app: The business application.
        service: Service that answers the checks.
        user_of: Function that returns the signed-in user of a request's scope, or "". Without this
            function, a user's own files are not offered.
        header_bytes: Longest value of the header. Tasks that do not fit come with the next
            answers, each of which begins with any of the tasks. A task that does not fit even alone
            is never sent, and is logged.
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
                # the answer begins, so the application knows the signed-in user by now
                push = _push(service, header, scope, user_of)
                value = b""
                if push is not None:
                    value, too_long = encode_push(push, header_bytes, randbelow(1_000))
                    for task in too_long:
                        service.warn_once(
                            f"{task}: {PUSH_HEADER} cannot announce its new version: its addresses "
                            f"alone are longer than {header_bytes} bytes; raise header_bytes and "
                            "the limit of proxies (nginx: proxy_buffer_size)"
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
            "devices are not told of new versions: the release service was not started, because "
            "no lifespan came here; enter service.running() in the outermost application's lifespan"
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
    """Return a push as a header's value; parts that do not fit are left for other answers.

    If not all parts fit, ``begin`` numbers the first task (and receipt). The number should vary: a
    task that a device always refuses must not keep the others away.

    Returns:
        The JSON in base64url, empty if nothing fits; and the tasks that do not fit even alone.
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
            # the application has no lifespan (ASGI 3: it raises then), and needs none
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
