"""Supervision: a failed turn is retried from the last commit, a few times.

A turn (one batch of one partition) either commits or leaves the store unchanged. The remedy for a
retryable failure is therefore always the same: open the partition again at its last commit and
handle the same batch again.
"""

import logging
from collections.abc import Callable

import msgspec

from walle_stream.errors import WalleError

_log = logging.getLogger(__name__)


class RestartPolicy(msgspec.Struct, frozen=True):
    """Limit of the retries of a turn before its failure is raised."""

    max_restarts: int = 3
    """Successive restarts without a commit between them, ≥ 0."""


class Supervisor:
    """Runner of turns that restarts a failed partition, and gives up after repeated failures."""

    def __init__(self, name: str, restart: Callable[[], None], policy: RestartPolicy) -> None:
        """Supervise one partition; ``restart`` returns it to its last commit and may block."""
        self.restarts = 0
        self._name = name
        self._restart = restart
        self._policy = policy

    def run(self, turn: Callable[[], None], failure: WalleError | None = None) -> None:
        """Run a turn; after a retryable failure restart the partition and run the turn again.

        The turn is idempotent until it has committed, and may block. ``failure`` is the error of
        its first attempt.

        Raises:
            WalleError: The turn failed for good, or too often.
        """
        for attempt in range(self._policy.max_restarts + 1):
            error, failure = failure, None
            if error is None:
                try:
                    turn()
                except WalleError as found:
                    error = found
                else:
                    return
            if not error.is_retryable or attempt == self._policy.max_restarts:
                raise error
            self.restarts += 1
            _log.warning(
                "%s failed (%s), restart %d of %d from its last commit",
                self._name,
                error,
                attempt + 1,
                self._policy.max_restarts,
            )
            self._restart()
