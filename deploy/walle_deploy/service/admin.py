"""What people and programs ask a release service besides checks.

``/healthz`` (the process answers), ``/readyz`` (there is a table), ``/metrics`` (Prometheus),
``/v1/known`` (devices by version and class). For the inside of a network: a proxy in front of
the service passes ``/v1/check`` alone.
"""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from walle_deploy.service.service import ReleaseService
from walle_stream.app.observability import Metrics


def admin_app(service: ReleaseService) -> Starlette:
    """Return the application of everything but checks.

    Args:
        service: What is asked.
    """

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        if service.is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"no releases: {service.problem or 'starting'}\n", 503)

    async def metrics(_: Request) -> Response:
        return PlainTextResponse(
            render_metrics(service), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

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
    """Return what a worker knows of devices, as plain JSON.

    Args:
        service: Of the worker.
    """
    names = ("app", "app_version", "os", "interpreter", "performance")
    return {
        "worker": service.worker,
        "devices": len(service.known),
        "forgotten": service.known.forgotten,
        "versions": [
            {"task": task, "version": version, "devices": count}
            for (task, version), count in sorted(service.known.counts().items())
        ],
        "classes": [
            {**dict(zip(names, kind, strict=False)), "devices": count}
            for kind, count in sorted(service.known.classes().items())
        ],
    }


def render_metrics(service: ReleaseService) -> str:
    """Return a worker's figures in Prometheus' text format.

    Args:
        service: Of the worker.
    """
    metrics = Metrics()
    checks = metrics.counter(
        "walle_release_checks_total", "Checks of this worker by answer.", ["worker", "answer"]
    )
    offered = metrics.counter(
        "walle_release_offers_total", "Versions offered, by release.", ["worker", "release"]
    )
    for answer, count in service.answers.items():
        checks.raise_to(count, worker=service.worker, answer=answer)
    for release, count in service.offered.items():
        offered.raise_to(count, worker=service.worker, release=release)
    index = service.index
    unfit = metrics.gauge(
        "walle_release_unfit_devices",
        "Devices that a release's version has no code for.",
        ["worker", "release"],
    )
    for release, count in index.unfit_devices.items() if index else ():
        unfit.set(count, worker=service.worker, release=release)
    for name, text, value in (
        ("known_devices", "Devices that this worker remembers.", len(service.known)),
        ("device_classes", "Classes of devices that are kept.", index.class_count if index else 0),
        ("generation", "Of the table in use.", index.generation if index else 0),
        ("table_is_old", "1 while a newer table cannot be loaded.", bool(service.problem)),
        ("files_unread", "Files of policies that cannot be read.", len(service.sources.problems)),
    ):
        gauge = metrics.gauge(f"walle_release_{name}", text, ["worker"])
        gauge.set(value, worker=service.worker)
    return metrics.render()
