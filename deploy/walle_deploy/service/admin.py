"""What people and programs ask a release service besides checks.

``/healthz`` (the process answers), ``/readyz`` (there is a table), ``/metrics`` (Prometheus),
``/v1/known`` (devices by version). For the inside of a network: a proxy in front of
the service passes ``/v1/check`` alone.
"""

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from walle_deploy.service.figures import render_figures
from walle_deploy.service.service import ReleaseService


def admin_app(service: ReleaseService) -> Starlette:
    """Return the application of everything but checks."""

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
    """Return what a worker knows of devices, as plain JSON."""
    return {
        "worker": service.worker,
        "devices": len(service.known),
        "forgotten": service.known.forgotten,
        "versions": [
            {"task": task, "version": version, "devices": count}
            for (task, version), count in sorted(service.known.counts().items())
        ],
    }
