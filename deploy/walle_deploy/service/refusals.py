"""Refusals of requests: the answers to clients, and the log lines."""

import logging
from collections import Counter
from math import ceil
from typing import Final

from walle_stream.clock import monotonic_ms
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
_PAUSE_MS: Final = 60_000
_log = logging.getLogger(__name__)


def refusal(error: WalleError, retry_s: int = 0) -> tuple[int, dict[str, str]]:
    """Return status and headers of the answer to an error; an unknown error gives 503.

    ``retry_s`` is the wait before a retry after a 503; 0 sends no ``Retry-After``.
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


class RefusedRequests:
    """Refused requests of one worker: all are counted, but few logged, as there may be millions."""

    def __init__(self, counts: Counter[str]) -> None:
        """Start without counts in the log."""
        self._counts = counts
        self._quiet_until_ms: dict[str, float] = {}

    def add(self, why: str, who: str, problem: str) -> None:
        """Count a refusal; the first of its kind (``why``) in a minute is logged."""
        self._counts[why] += 1
        now_ms = monotonic_ms()
        if now_ms < self._quiet_until_ms.get(why, now_ms):
            return
        self._quiet_until_ms[why] = now_ms + _PAUSE_MS
        _log.warning(
            "%s was refused: %s; %d such requests since the start of this worker; the next line "
            "comes in a minute at the earliest, and /metrics counts all (why=%s)",
            who or "a client",
            problem,
            self._counts[why],
            why,
        )
