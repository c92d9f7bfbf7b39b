"""The service over HTTP: ``/v1/check`` by a plain ASGI function, the rest by Starlette.

A check is ``GET /v1/check`` with the header ``walle-profile``. The answers are:

- 200: a ``Push`` as JSON.
- 204: nothing is new.
- 400: the header is not a profile.
- 401: the identity is not proven.
- 403: the profile is that of another device.
- 413: the body is too long.
- 429, with ``Retry-After``: the sender exceeds a budget.
- 503, with ``Retry-After``: no table is loaded yet.

A proxy in front should pass only ``/v1/check``, because all other paths are for the inside of a
network. They are ``/healthz`` (the process answers), ``/readyz`` (a table is loaded), ``/metrics``
(Prometheus) and ``/v1/known`` (devices by version).
"""

import asyncio
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from walle_deploy.service.admission import picked
from walle_deploy.service.checks import CHECK_PATH, Answer, answer_checks
from walle_deploy.service.figures import render_figures
from walle_deploy.service.service import ReleaseService

_LENGTH: Final = b"content-length"


def service_app(service: ReleaseService) -> ASGIApp:
    """Return a service's ASGI application; the service starts and stops with the application."""
    admin = admin_app(service)
    body_max = service.spec.limits.body_bytes
    # these routes have their own limits
    others = frozenset(route.path for route in service.routes)
    check, looked_at = answer_checks(service)
    wanted = looked_at | {_LENGTH}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(service, receive, send)
            return
        headers = picked(scope["headers"], wanted)
        length = headers.get(_LENGTH, b"0")
        if scope["path"] not in others and length.isdigit() and int(length) > body_max:
            problem = {"error": f"the body has more than {body_max} bytes"}
            answer = Answer.of(413, problem, {"connection": "close"})
        elif scope["path"] == CHECK_PATH:
            answer = check(headers, scope["client"])
        else:
            await admin(scope, receive, send)
            return
        status, fields, body = answer
        await send({"type": "http.response.start", "status": status, "headers": fields})
        await send({"type": "http.response.body", "body": body})

    return app


async def _live(service: ReleaseService, receive: Receive, send: Send) -> None:
    await receive()
    async with service.running():
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


def admin_app(service: ReleaseService) -> Starlette:
    """Return the application for everything except checks."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse(f"ok\nauthentication: {service.admission.mode}\n")

    async def readyz(_: Request) -> Response:
        if service.is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"no releases: {service.problem or 'starting'}\n", 503)

    async def metrics(_: Request) -> Response:
        own = service.figures()
        text = render_figures([*own, *await asyncio.to_thread(service.others_figures)])
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def known(_: Request) -> Response:
        return JSONResponse(known_devices(service))

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/v1/known", known),
            *service.routes,
        ]
    )


def known_devices(service: ReleaseService) -> dict[str, object]:
    """Return a worker's known devices by version, as plain JSON."""
    return {
        "worker": service.worker,
        "devices": len(service.known),
        "forgotten": service.known.forgotten,
        "versions": [
            {"task": task, "version": version, "devices": count}
            for (task, version), count in sorted(service.known.counts().items())
        ],
    }
