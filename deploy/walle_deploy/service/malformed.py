"""Requests that are no HTTP: all are counted, few are logged, as any client can send a million."""

import logging
from collections import Counter
from typing import Final

from walle_deploy.service.seldom import Seldom

BAD_REQUEST: Final = "bad_request"
"""Under which they are counted among a service's answers."""

_log = logging.getLogger(__name__)


class MalformedRequests:
    """Those of one worker; used by its event loop."""

    def __init__(self, answers: Counter[str]) -> None:
        """Begin with none.

        Args:
            answers: Of the service; counts them.
        """
        self._answers = answers
        self._seldom = Seldom()

    def add(self, client: tuple[str, int] | None) -> None:
        """Count one; the first in a minute is logged.

        Args:
            client: Address and port of who sent it, where they are known.
        """
        self._answers[BAD_REQUEST] += 1
        if not self._seldom.is_due():
            return
        _log.warning(
            "%s sent a request that is no HTTP, it was refused (400): %d since the start of this "
            "worker; the next line comes in a minute at the earliest, /metrics counts all "
            "(answer=%s)",
            client[0] if client else "a client",
            self._answers[BAD_REQUEST],
            BAD_REQUEST,
        )
