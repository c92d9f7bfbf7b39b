"""Which versions of tasks there are, for those who get names of them from devices."""

import time
from collections.abc import Callable
from typing import Final

from walle_deploy.store.port import ReleaseStore

_S: Final = 1.0
_LOOKS_MAX: Final = 100


class KnownVersions:
    """Knows the published versions of a store. One thread at a time.

    A version that was published stays: it is looked up once. One that there is not is looked up
    again after a second. Names that somebody makes up cost at most 100 looks a second; while
    they do, versions that were published in that second are not known yet, either.
    """

    def __init__(self, store: ReleaseStore, now_s: Callable[[], float] = time.monotonic) -> None:
        """Look nothing up yet.

        Args:
            store: Stays the caller's.
            now_s: A clock, seconds.
        """
        self._store = store
        self._now_s = now_s
        self._known: set[tuple[str, str]] = set()
        self._unknown: set[tuple[str, str]] = set()
        self._since_s = now_s()

    def __call__(self, task: str, version: str) -> bool:
        """Return whether a version was published; blocks where it is not known.

        Args:
            task: ``SCENARIO/TASK``.
            version: Of it.

        Raises:
            ServiceUnreachableError: The database does not answer.
        """
        pair = task, version
        if pair in self._known:
            return True
        now_s = self._now_s()
        if now_s - self._since_s >= _S:
            self._unknown.clear()
            self._since_s = now_s
        if pair in self._unknown or len(self._unknown) >= _LOOKS_MAX:
            return False
        with self._store.reading() as transaction:
            found = transaction.has_version(task, version)
        (self._known if found else self._unknown).add(pair)
        return found
