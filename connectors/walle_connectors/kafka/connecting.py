"""Creation of clients while a broker may be down."""

import logging
from collections.abc import Callable, Hashable
from threading import Event
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.errors import BrokerUnreachableError, SourceError, TopicError

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_REMIND_EVERY: Final = 30  # attempts, about a minute
_REMIND_MS: Final = 30_000.0


class Reminder:
    """Rate-limited warnings: at most one line per subject in 30 s."""

    def __init__(self) -> None:
        """Start with no warning logged."""
        self._due_ms: dict[Hashable, float] = {}

    def warn(self, what: Hashable, text: str) -> None:
        """Log a line, unless a line about ``what`` was logged in the last 30 s."""
        now_ms = monotonic_ms()
        if now_ms >= self._due_ms.get(what, 0.0):
            self._due_ms[what] = now_ms + _REMIND_MS
            _log.warning("%s", text)


def connect[C](
    make: Callable[[], C],
    stopped: Event,
    purpose: str,
) -> C | None:
    """Call ``make`` until a broker answers and return its client; blocks.

    Returns None when ``stopped`` is set first.
    """
    pause_s, attempts, said = _PAUSE_S, 0, ""
    while not stopped.is_set():
        try:
            client = make()
        except (BrokerUnreachableError, TopicError, SourceError) as error:
            if str(error) != said or attempts % _REMIND_EVERY == 0:
                said = str(error)
                _log.warning("%s waits: %s", purpose, said or type(error).__name__)
            attempts += 1
            stopped.wait(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            continue
        if attempts:
            _log.info("%s continues: a broker answers", purpose)
        return client
    return None
