"""Pages of the cloud side: the latest features of a device, and health. JSON.

A device's row is at the worker that has its partition, which the key alone does not
tell (the sender says the partition). So a worker that does not have it asks the others,
once; only when all of them answered is a device unknown. While partitions move and until
tables are recovered nothing is said of any device: what a worker has then may be an older row.
"""

import asyncio
from typing import Any, Final
from urllib.parse import quote

import msgspec
from aiohttp import ClientError, ClientTimeout
from yarl import URL

from walle_connectors.faust.device_row import decode_row
from walle_connectors.faust.features import FeaturesApp
from walle_connectors.faust.watchdog import Watchdog
from walle_stream.types import device_id_problem

_ASKED_HEADER: Final = "X-Walle-Forwarded"
_OTHER_S: Final = 5.0
_MOVING: Final = "partitions are being moved or recovered"


class _Serving:
    # between the end of a recovery and the next rebalance

    def __init__(self, app: Any) -> None:
        self._app = app
        self._has_tables = False

        # every rebalance begins so; the signal of what was assigned may come behind the recovery
        @app.on_partitions_revoked.connect  # type: ignore[untyped-decorator]
        async def on_move(*_: Any, **__: Any) -> None:
            self._has_tables = False

        @app.on_rebalance_complete.connect  # type: ignore[untyped-decorator]
        async def on_recovered(*_: Any, **__: Any) -> None:
            self._has_tables = True

    @property
    def is_on(self) -> bool:
        return self._has_tables and not self._app.rebalancing and not self._app.should_stop


def add_pages(made: FeaturesApp, watchdog: Watchdog) -> None:
    """Add the pages to an app.

    Args:
        made: The app.
        watchdog: Its, for what health shows.
    """
    app = made.app
    serving = _Serving(app)

    @app.page("/features/{device}")  # type: ignore[untyped-decorator]
    async def features(web: Any, request: Any, device: str) -> Any:
        return await _features(made, serving, web, request, device)

    @app.page("/healthz")  # type: ignore[untyped-decorator]
    async def healthz(web: Any, request: Any) -> Any:  # noqa: ARG001 - the server's signature
        shown = {
            "status": "ok" if serving.is_on else "rebalancing",
            "counts": msgspec.to_builtins(made.merger.counts),
            "partitions": {
                str(tp.partition): {"is_behind": place.is_behind}
                for tp, place in sorted(watchdog.places.items())
            },
        }
        return _json(web, shown, 200 if serving.is_on else 503)


async def _features(
    made: FeaturesApp, serving: _Serving, web: Any, request: Any, device: str
) -> Any:
    problem = device_id_problem(device)
    if problem is not None:
        return _json(web, {"error": problem}, 400)
    if not serving.is_on:
        return _not_now(web, _MOVING)
    try:
        value = made.devices.get(device.encode())
    except KeyError:  # the partition was taken away meanwhile
        value = None
    if value is not None:
        row = decode_row(value)
        return _json(web, row.to_builtins(device, request.query.get("task")), 200)
    if _ASKED_HEADER in request.headers:
        return _unknown(web, device)
    return await _elsewhere(made.app, serving, web, request, device)


async def _elsewhere(app: Any, serving: _Serving, web: Any, request: Any, device: str) -> Any:
    others = _others(app)
    answers = await asyncio.gather(
        *(_ask(app, other, device, request.query_string) for other in others)
    )
    silent = []
    for other, answer in zip(others, answers, strict=True):
        if answer is None or answer[0] not in {200, 404}:
            silent.append(str(other))
        elif answer[0] == 200:  # noqa: PLR2004 - HTTP
            return web.bytes(answer[1], content_type="application/json")
    if silent:
        return _not_now(web, f"{', '.join(silent)} gave no answer")
    # the device may have moved here while the others were asked
    return _unknown(web, device) if serving.is_on else _not_now(web, _MOVING)


def _unknown(web: Any, device: str) -> Any:
    return _json(web, {"error": f"no features of device {device!r}"}, 404)


def _not_now(web: Any, why: str) -> Any:
    return _json(web, {"error": f"not known now: {why}; ask again"}, 503)


def _others(app: Any) -> list[URL]:
    mine = app.conf.canonical_url
    found = {URL(str(address)) for address in app.router.tables_metadata()}
    return sorted(each for each in found if (each.host, each.port) != (mine.host, mine.port))


async def _ask(app: Any, other: URL, device: str, query: str) -> tuple[int, bytes] | None:
    address = URL(
        f"{str(other).rstrip('/')}/features/{quote(device, safe='')}?{query}", encoded=True
    )
    try:
        async with app.http_client.get(
            address, headers={_ASKED_HEADER: "1"}, timeout=ClientTimeout(total=_OTHER_S)
        ) as response:
            return response.status, await response.read()
    except (ClientError, TimeoutError, OSError):
        return None


def _json(web: Any, shown: Any, status: int) -> Any:
    return web.bytes(msgspec.json.encode(shown), content_type="application/json", status=status)
