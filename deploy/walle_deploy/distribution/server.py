"""A file server for development, and the check of exclusive addresses for nginx.

It answers like ``deploy/nginx/walle.conf.template``: only names of a strict form, ranges, no
listings, nothing that begins with a dot. Names with a version or hash are cached forever,
``timestamp.json`` is revalidated each time, and exclusive files are never cached.
"""

import logging
import re
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from walle_deploy.distribution.signed_urls import PROOF_HEADER, UrlSigner
from walle_stream.errors import IntegrityError

FOR_EVER: Final = "public, max-age=31536000, immutable"
"""Cache rule for files whose name changes with their content."""

_HASH: Final = r"[0-9a-f]{2}/[0-9a-f]{64}"
_PUBLIC: Final = re.compile(
    rf"metadata/(?:timestamp\.json|[1-9][0-9]*\.[a-z][a-z0-9-]*\.json|tree/{_HASH})|targets/{_HASH}"
)
_EXCLUSIVE: Final = re.compile(rf"exclusive/{_HASH}")
_log: Final = logging.getLogger(__name__)


def build_app(
    public: Path, private: Path | None = None, signer: UrlSigner | None = None
) -> Starlette:
    """Make the ASGI application over a repository's folders.

    Without ``private`` or a ``signer`` it serves no exclusive file.
    """

    async def get_public(request: Request) -> Response:
        name = _name(request)
        if not _PUBLIC.fullmatch(name):
            return _not_found()
        media = "application/json" if name.endswith(".json") else "application/octet-stream"
        cached = "no-cache" if name == "metadata/timestamp.json" else FOR_EVER
        return _file(public / name, media, cached)

    async def get_exclusive(request: Request) -> Response:
        name = _name(request)
        if private is None or not _EXCLUSIVE.fullmatch(name):
            return _not_found()
        query = request.scope["query_string"].decode("latin-1")
        if not _may(signer, request, f"{request.scope['path']}?{query}"):
            return _refused()
        return _file(private / name, "application/octet-stream", "private, no-store")

    async def authorize(request: Request) -> Response:
        # for nginx's auth_request; nginx sets X-Original-URI, the device cannot
        may = _may(signer, request, request.headers.get("x-original-uri", ""))
        return Response(status_code=204) if may else _refused()

    return Starlette(
        routes=[
            Route("/authorize", authorize),
            Route("/exclusive/{name:path}", get_exclusive),
            Route("/{name:path}", get_public),
        ]
    )


def _may(signer: UrlSigner | None, request: Request, url: str) -> bool:
    if signer is None:
        return False
    try:
        signer.check(url, request.headers.get(PROOF_HEADER, ""))
    except IntegrityError as error:
        _log.warning("refused: %s", error)
        return False
    return True


def _name(request: Request) -> str:
    # a route's parameter would lose a line feed at its end
    path: str = request.scope["path"]
    return path.removeprefix("/")


def _file(path: Path, media: str, cached: str) -> Response:
    if not path.is_file() or path.is_symlink():
        return _not_found()
    headers = {"Cache-Control": cached, "X-Content-Type-Options": "nosniff"}
    return FileResponse(path, media_type=media, headers=headers)


def _not_found() -> Response:
    # not cached, because devices ask for the next root long before it exists
    return PlainTextResponse("not found\n", 404, {"Cache-Control": "no-store"})


def _refused() -> Response:
    return PlainTextResponse("refused\n", 403, {"Cache-Control": "no-store"})
