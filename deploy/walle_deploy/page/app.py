"""The pages as routes, with access rights and response headers.

A page is made from the store alone, so any worker can make it, also after a restart. The only
change is to stop a release. It names the revision of its page, so an old page changes nothing.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from walle_deploy.operators.operator import Operator
from walle_deploy.page.templates import SERVED, Html, filled
from walle_deploy.page.views import PAGES, STOPS
from walle_deploy.service.bodies import BodyRoom, read_body
from walle_deploy.service.operating import Prove
from walle_deploy.service.refusals import refusal
from walle_deploy.store.port import ReleaseStore
from walle_stream.errors import EnvelopeError, ForbiddenError, IdentityError, WalleError
from walle_stream.wire.bearer import TOKEN_HEADER

COOKIE: Final = "walle_operator"


type Stop = Callable[[Operator, str, str, str, int], object]
"""Stops a release; blocks. Arguments: operator, name, one of ``STOPS``, reason, revision."""

type _Page = Callable[[Request], Awaitable[Response]]

_BODY_MAX, _WHY_MAX = 16_384, 500
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]{1,4000}")  # RFC 6750; browsers drop longer cookies
_REVISION: Final = re.compile(r"[0-9]{1,18}")
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer our own forms would lack an origin
    "cache-control": "no-store",
}


def page_routes(
    store: ReleaseStore, operator_of: Prove, stop: Stop, header: str = "authorization"
) -> list[Route]:
    """Return the pages over a store, which stays the caller's.

    ``header`` is the header in which ``operator_of`` expects a token, in lower case.
    """
    pages = _Pages(store, operator_of, stop, header)
    posts = {
        "/releases/{name}/stop": pages.stop,
        "/sign-in": pages.sign_in,
        "/sign-out": pages.sign_out,
    }
    return [
        *(Route(path, _answering(pages.show)) for path in PAGES),
        *(Route(path, _answering(page), methods=["POST"]) for path, page in posts.items()),
        Route("/page/page.css", _answering(_file("page.css", "text/css"))),
        Route("/page/page.js", _answering(_file("page.js", "text/javascript"))),
    ]


class _Pages:
    def __init__(self, store: ReleaseStore, operator_of: Prove, stop: Stop, header: str) -> None:
        self._store, self._operator_of, self._stop = store, operator_of, stop
        self._header = header
        self._room = BodyRoom(64 * _BODY_MAX)

    async def show(self, request: Request) -> Response:
        operator = await self._prove(request, request.cookies.get(COOKIE, ""))
        parameters = {**request.query_params, **request.path_params}

        def make() -> Html:
            with self._store.reading() as transaction:
                return PAGES[request.scope["route"].path](transaction, operator.role, parameters)

        return _shown(await asyncio.to_thread(make), parameters.get("name", "releases"), operator)

    async def stop(self, request: Request) -> Response:
        operator = await self._prove(request, request.cookies.get(COOKIE, ""))
        if operator.role == "viewer":
            raise ForbiddenError("the role viewer may not change anything")
        name, form = request.path_params["name"], await self._form(request)
        action, revision = form.get("action"), form.get("revision", "")
        if action not in STOPS or not _REVISION.fullmatch(revision):
            raise EnvelopeError("this form is not valid: open the release again")
        why = "".join(character for character in form.get("why", "") if character.isprintable())
        await asyncio.to_thread(self._stop, operator, name, action, why[:_WHY_MAX], int(revision))
        return RedirectResponse(f"/releases/{quote(name, safe='')}", 303)

    async def sign_in(self, request: Request) -> Response:
        token = (await self._form(request)).get("token", "").strip()
        if not _TOKEN.fullmatch(token):
            raise IdentityError("this is not a token, or it has more than 4,000 characters")
        await self._prove(request, token)
        response = RedirectResponse("/", 303)
        # the browser's origin tells its own scheme, whatever proxies are between
        is_safe = request.headers.get("origin", "").startswith("https:")
        response.set_cookie(COOKIE, token, secure=is_safe, httponly=True, samesite="strict")
        return response

    async def sign_out(self, _: Request) -> Response:
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    async def _prove(self, request: Request, token: str) -> Operator:
        headers = list(request.scope["headers"])
        # a proxy may have added a token
        if token and not {self._header, TOKEN_HEADER} & {*request.headers}:
            value = f"Bearer {token}".encode("latin-1", "replace")
            headers.append((self._header.encode(), value))
        return await self._operator_of(headers, request.scope["client"])

    async def _form(self, request: Request) -> dict[str, str]:
        with self._room.share() as share:
            body = await read_body(request, _BODY_MAX, share)
        try:
            text = "" if isinstance(body, Response) else body.decode("ascii")
            return dict(parse_qsl(text, strict_parsing=True, max_num_fields=9))
        except ValueError:
            raise EnvelopeError("this form is not valid, or too long") from None


def _answering(page: _Page) -> _Page:
    """Return a page with our headers, or with an error message."""

    async def respond(request: Request) -> Response:
        try:
            if request.method == "POST":
                _check_origin(request)
            response = await page(request)
        except WalleError as error:
            path = request.url.path.removesuffix("/stop")
            status, more = refusal(error)
            phrase = HTTPStatus(status).phrase
            title = "Nothing was changed" if status == HTTPStatus.CONFLICT else phrase
            main = filled(
                "problem",
                title=title,
                text=error.message,
                form=error if status == HTTPStatus.UNAUTHORIZED else None,
                path=path if path.startswith("/releases/") else "/",
            )
            response = _shown(main, title, None, status)
            response.headers.update(more)
        response.headers.update(_HEADERS)
        return response

    return respond


def _check_origin(request: Request) -> None:
    site, origin = (request.headers.get(name, "") for name in ("sec-fetch-site", "origin"))
    # scripts of a page cannot change these; browsers send the first over secure connections
    is_own = bool(origin) and origin.partition("://")[2] == request.headers.get("host")
    if site != "same-origin" and (site or not is_own):
        raise ForbiddenError(
            "another site's page, or no page, sent this request: nothing was changed"
        )


def _file(name: str, kind: str) -> _Page:
    data = (SERVED / name).read_bytes()

    async def file(_: Request) -> Response:
        return Response(data, media_type=kind)

    return file


def _shown(main: Html, title: str, operator: Operator | None, status: int = 200) -> Response:
    page = filled("page", title=title, main=main, operator=operator)
    return HTMLResponse(page.text, status)
