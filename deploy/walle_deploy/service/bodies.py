"""Request bodies, with a limit of bytes; ``protocol`` limits the time for sending a body."""

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response


class BodyRoom:
    """Room for the bodies that a worker holds in memory at once, for one event loop."""

    def __init__(self, max_bytes: int) -> None:
        """Start with all room free."""
        self.left_bytes = max_bytes

    @contextmanager
    def share(self) -> Iterator["BodyShare"]:
        """Give a share for one body, which grows on demand and is freed at the end."""
        share = BodyShare(self)
        try:
            yield share
        finally:
            self.left_bytes += share.held_bytes


class BodyShare:
    """The share of the room that one body takes."""

    def __init__(self, room: BodyRoom) -> None:
        """Start with no bytes."""
        self.held_bytes = 0
        self._room = room

    def grow(self, size_bytes: int) -> bool:
        """Take more room, and return whether there was enough."""
        if size_bytes > self._room.left_bytes:
            return False
        self._room.left_bytes -= size_bytes
        self.held_bytes += size_bytes
        return True


async def read_body(request: Request, max_bytes: int, share: BodyShare) -> bytes | Response:
    """Return a request's body, or the answer that refuses it; holds at most ``max_bytes``.

    The body must be unread. The caller holds the share of the room until the body is not needed.

    Returns:
        The body, or an answer: 413 for a body that is too long, 503 while memory is short, 400
        after the client hung up. 413 and 503 close the connection.
    """
    body = bytearray()
    try:
        async for piece in request.stream():
            if len(body) + len(piece) > max_bytes:
                return _refused(413, f"the body has more than {max_bytes} bytes")
            if not share.grow(len(piece)):
                return _refused(503, "too many long bodies at once: retry later")
            body += piece
    except ClientDisconnect:
        return JSONResponse({"error": "the connection ended before the end of the body"}, 400)
    return bytes(body)


def _refused(status: int, problem: str) -> Response:
    headers = {"connection": "close"}
    if status == 503:  # noqa: PLR2004
        headers["retry-after"] = "1"
    return JSONResponse({"error": problem}, status, headers)
