"""Refused requests: all are counted, few are logged, as any client can send a million."""

import logging
from collections import Counter
from typing import Final

from walle_stream.clock import monotonic_ms

_PAUSE_MS: Final = 60_000
_log = logging.getLogger(__name__)


class RefusedRequests:
    """Those of one worker, by why. One event loop."""

    def __init__(self, counts: Counter[str]) -> None:
        """Begin with none."""
        self._counts = counts
        self._quiet_until_ms: dict[str, float] = {}

    def add(self, why: str, who: str, problem: str) -> None:
        """Count one; of a kind (``why``) the first in a minute is logged."""
        self._counts[why] += 1
        now_ms = monotonic_ms()
        if now_ms < self._quiet_until_ms.get(why, now_ms):
            return
        self._quiet_until_ms[why] = now_ms + _PAUSE_MS
        _log.warning(
            "%s was refused: %s; %d such requests since the start of this worker, the next line "
            "comes in a minute at the earliest, /metrics counts all (why=%s)",
            who or "a client",
            problem,
            self._counts[why],
            why,
        )
