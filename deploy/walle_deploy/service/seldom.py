"""Lines in a log that any client can cause a million times: one a minute."""

from typing import Final

from walle_stream.clock import monotonic_ms

_PAUSE_MS: Final = 60_000


class Seldom:
    """When the next line is due. One thread."""

    def __init__(self) -> None:
        """Begin: the first one is due at once."""
        self._quiet_until_ms = -float(_PAUSE_MS)

    def is_due(self) -> bool:
        """Return whether a line is due; the next one is so in a minute then."""
        now_ms = monotonic_ms()
        if now_ms < self._quiet_until_ms:
            return False
        self._quiet_until_ms = now_ms + _PAUSE_MS
        return True
