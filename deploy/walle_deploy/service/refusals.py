"""How errors look over HTTP."""

from math import ceil
from typing import Final

from walle_stream.errors import (
    ConflictError,
    EnvelopeError,
    ForbiddenError,
    IdentityError,
    ProfileError,
    RefNotFoundError,
    ReleaseStateError,
    ServiceBusyError,
    ServiceUnreachableError,
    WalleError,
)

REFUSALS: Final = (
    EnvelopeError,
    ForbiddenError,
    IdentityError,
    ProfileError,
    ServiceUnreachableError,
)
"""What a client is told."""

_STATUS: Final[dict[type[WalleError], int]] = {
    ConflictError: 409,
    EnvelopeError: 400,
    ForbiddenError: 403,
    IdentityError: 401,
    ProfileError: 400,
    RefNotFoundError: 404,
    ReleaseStateError: 409,
    ServiceBusyError: 429,
}


def refusal(error: WalleError, retry_s: int = 0) -> tuple[int, dict[str, str]]:
    """Return status and headers of the answer to what failed; anything unknown is 503.

    ``retry_s`` is what somebody waits who comes again after a 503; 0: that is not said.
    """
    status = _STATUS.get(type(error), 503)
    headers = {}
    if status == 401:  # noqa: PLR2004
        headers["www-authenticate"] = "Bearer"
    elif isinstance(error, ServiceBusyError):
        headers["retry-after"] = str(max(ceil(error.after_s), 1))
    elif status == 503 and retry_s:  # noqa: PLR2004
        headers["retry-after"] = str(retry_s)
    return status, headers
