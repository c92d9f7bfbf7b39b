"""Pages of the cloud side: the latest features of a device, and health. JSON.

A device's row is at the worker that has its partition, which the key alone does not
tell (the sender says the partition). So a worker that does not have it asks the others,
once; only when they answered for all partitions is a device unknown. While partitions move, until
tables are recovered, and when the broker may have given the partitions to another, nothing is said
of any device: what a worker has then may be an older row.
"""

from typing import Any, Final

import msgspec

from walle_connectors.faust.device_row import decode_row
from walle_connectors.faust.features import FeaturesApp
from walle_connectors.faust.membership import MOVING, Serving
from walle_connectors.faust.neighbours import ASKED_HEADER, Without, ask_others
from walle_connectors.faust.watchdog import Watchdog
from walle_stream.types import device_id_problem

_HEALTH: Final = {"": "ok", MOVING: "rebalancing"}


def add_pages(made: FeaturesApp, watchdog: Watchdog) -> None:
    """Add the pages to an app."""
    app = made.app
    serving = Serving(app, made.devices)

    @app.page("/features/{device}")  # type: ignore[untyped-decorator]
    async def features(web: Any, request: Any, device: str) -> Any:
        return await _features(made, serving, web, request, device)

    @app.page("/healthz")  # type: ignore[untyped-decorator]
    async def healthz(web: Any, request: Any) -> Any:  # noqa: ARG001 - the server's signature
        problem = serving.problem
        shown = {
            "status": _HEALTH.get(problem, "cut off"),
            "counts": msgspec.to_builtins(made.merger.counts),
            "reports": made.reports and msgspec.to_builtins(made.reports.counts),
            "partitions": {
                str(tp.partition): {"is_behind": place.is_behind}
                for tp, place in sorted(watchdog.places.items())
            },
        }
        return _json(web, shown, 503 if problem else 200)


async def _features(
    made: FeaturesApp, serving: Serving, web: Any, request: Any, device: str
) -> Any:
    wrong = device_id_problem(device)
    if wrong is not None:
        return _json(web, {"error": wrong}, 400)
    group = request.headers.get(ASKED_HEADER)
    if group not in {None, made.app.conf.id}:
        return _json(web, {"error": f"this is a worker of {made.app.conf.id!r}"}, 421)
    try:
        value = made.devices.get(device.encode())
    except KeyError:  # the partition was taken away meanwhile
        value = None
    mine = serving.partitions
    problem = serving.problem
    if problem:
        return _not_now(web, problem)
    if value is not None:
        row = decode_row(value)
        return _json(web, row.to_builtins(device, request.query.get("task")), 200)
    if group is not None:
        return _json(web, msgspec.to_builtins(Without(_unknown(device), sorted(mine))), 404)
    return await _elsewhere(made, serving, web, request.query_string, device, mine)


async def _elsewhere(
    made: FeaturesApp, serving: Serving, web: Any, query: str, device: str, mine: set[int]
) -> Any:
    answers = await ask_others(made.app, device, query)
    if answers.found is not None:
        return web.bytes(answers.found, content_type="application/json")
    if answers.silent:
        return _not_now(web, f"{', '.join(answers.silent)} gave no answer")
    missing = set(range(made.devices.partitions)) - mine - answers.partitions
    if missing:
        shown = ", ".join(map(str, sorted(missing)))
        return _not_now(web, f"no worker that was asked has the partitions {shown}")
    # the device may have moved here while the others were asked
    problem = serving.problem
    return _not_now(web, problem) if problem else _json(web, {"error": _unknown(device)}, 404)


def _unknown(device: str) -> str:
    return f"no features of device {device!r}"


def _not_now(web: Any, why: str) -> Any:
    return _json(web, {"error": f"not known now: {why}; ask again"}, 503)


def _json(web: Any, shown: Any, status: int) -> Any:
    return web.bytes(msgspec.json.encode(shown), content_type="application/json", status=status)
