"""The body of a request, with a bound in bytes; ``protocol`` bounds the time for sending it."""

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response


class BodyRoom:
    """Room for the bodies that a worker has in memory at once. One event loop."""

    def __init__(self, max_bytes: int) -> None:
        """Hold nothing yet."""
        self.left_bytes = max_bytes

    @contextmanager
    def share(self) -> Iterator["BodyShare"]:
        """Take room for one body as it grows; left, it is free again."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            self.left_bytes += share.held_bytes


class BodyShare:
    """What one body has of the room."""

    def __init__(self, room: BodyRoom) -> None:
        """Take nothing yet."""
        self.held_bytes = 0
        self._room = room

    def grow(self, size_bytes: int) -> bool:
        """Take more room, if there is some."""
        if size_bytes > self._room.left_bytes:
            return False
        self._room.left_bytes -= size_bytes
        self.held_bytes += size_bytes
        return True


async def read_body(request: Request, max_bytes: int, share: BodyShare) -> bytes | Response:
    """Return a request's body, or the answer to one that is none; keeps no more than the bound.

    Nobody has read it yet; its share of the room is held until it is of no use any more.

    Returns:
        The body; else 413 where it is longer, 503 where there is no room for it now, which both
        close the connection, or 400 where the client hung up in the middle: that one nobody
        reads.
    """
    body = bytearray()
    try:
        async for piece in request.stream():
            if len(body) + len(piece) > max_bytes:
                return _refused(413, f"a body of more than {max_bytes} bytes")
            if not share.grow(len(piece)):
                return _refused(503, "too many long bodies at once: come again")
            body += piece
    except ClientDisconnect:
        return JSONResponse({"error": "the body ended before its end"}, 400)
    return bytes(body)


def _refused(status: int, problem: str) -> Response:
    headers = {"connection": "close"}
    if status == 503:  # noqa: PLR2004
        headers["retry-after"] = "1"
    return JSONResponse({"error": problem}, status, headers)
