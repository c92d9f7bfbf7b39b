"""The body of a request, with a bound in bytes; ``protocol`` bounds the time for sending it."""

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response


async def read_body(request: Request, max_bytes: int) -> bytes | Response:
    """Return a request's body, or the answer to one that is none; keeps no more than the bound.

    Args:
        request: Whose body nobody has read yet.
        max_bytes: Longest body.

    Returns:
        The body; else 413 where it is longer, and closes the connection, or 400 where the
        client hung up in the middle: that one nobody reads.
    """
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > max_bytes:
                problem = {"error": f"a body of more than {max_bytes} bytes"}
                return JSONResponse(problem, 413, {"connection": "close"})
    except ClientDisconnect:
        return JSONResponse({"error": "the body ended before its end"}, 400)
    return bytes(body)
