"""Warm copies: local copies of the newest snapshots of partitions that may move to this node."""

import logging
from collections.abc import Callable, Collection
from threading import Condition, Thread

from walle_stream.errors import StoreError
from walle_stream.store.snapshots import PartitionSnapshots

_log = logging.getLogger(__name__)


class WarmCopies:
    """Updater of warm copies, in a thread of its own. Any thread may call."""

    def __init__(
        self, snapshots_of: Callable[[int], PartitionSnapshots | None], every_ms: float
    ) -> None:
        """Begin without copies; each is checked again after ``every_ms``."""
        self._snapshots_of = snapshots_of
        self._every_s = every_ms / 1000.0
        self._condition = Condition()
        self._wanted: frozenset[int] = frozenset()
        self._warm: frozenset[int] = frozenset()
        self._is_closed = False
        self._thread = Thread(target=self._run, name="walle-warm", daemon=True)
        self._thread.start()

    @property
    def warm(self) -> frozenset[int]:
        """Partitions whose copy was the newest at its last check."""
        return self._warm

    def keep(self, numbers: Collection[int]) -> None:
        """Keep copies of these partitions, and of no others."""
        with self._condition:
            self._wanted = frozenset(numbers)
            self._condition.notify_all()

    def close(self) -> None:
        """Stop updating; files on the disk stay for the next owner."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    def _run(self) -> None:
        while not self._is_closed:
            wanted = self._wanted
            for number in sorted(self._warm - wanted):
                self._warm -= {number}
                if (snapshots := self._snapshots_of(number)) is not None:
                    snapshots.forget_warm()
            for number in sorted(wanted):
                if self._is_closed or self._wanted != wanted:
                    break
                self._fetch(number)
            with self._condition:
                self._condition.wait_for(
                    lambda wanted=wanted: self._is_closed or self._wanted != wanted,  # type: ignore[misc]
                    self._every_s,
                )

    def _fetch(self, number: int) -> None:
        snapshots = self._snapshots_of(number)
        try:
            if snapshots is not None:
                snapshots.warm()
        except StoreError as error:
            _log.warning("the warm copy of partition %d is not updated: %s", number, error)
        else:
            self._warm |= {number}
