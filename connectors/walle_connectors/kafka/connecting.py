"""Making clients while a broker may be down."""

import logging
from collections.abc import Callable
from threading import Event
from typing import Final

from walle_stream.errors import BrokerUnreachableError, SourceError, TopicError

_log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_REMIND_EVERY: Final = 30  # attempts, about a minute


def connect[C](
    make: Callable[[], C],
    stopped: Event,
    purpose: str,
) -> C | None:
    """Make a client, whose making looks for a broker, as soon as one answers; blocks.

    None when it was stopped before.
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
            _log.info("%s goes on: a broker answers", purpose)
        return client
    return None
