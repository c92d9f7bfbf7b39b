"""Size of batches: as many events as a turn can handle in its target time.

Large batches spread the fixed cost of a turn (a VM call, a write batch, a frame) over more events;
small batches are committed sooner. The boundaries of batches change neither features nor state, so
the size may depend on measured time.

Only the *work* of a turn counts: CPU time of the host's thread, and of its VMs while the thread
waits for them. CPU time of other programs does not count: smaller batches would only cost more and
free no core. Waits do not count either (a pause before a retry, a remote model, a disk): they are
no shorter for fewer events.
"""

from collections.abc import Callable
from typing import Final

from walle_stream.clock import monotonic_ms, thread_cpu_ms
from walle_stream.vm.task_pool import called_cpu_ms

FIRST_EVENTS: Final = 256
"""Maximum events of a batch before the first measurement: a script's runs may be long."""

LEAST_EVENTS: Final = 8
"""Minimum limit of a batch, however long a turn takes."""

FIXED_SHARE: Final = 1 / 3
"""Maximum share of a turn's work that may be fixed.

Above it, waiting for more events is cheaper than committing.
"""

_SHARED_BY: Final = 8
_MOST_STRETCH: Final = 20.0
_MOST_FIXED: Final = 0.9
_GROWTH: Final = 2.0
_WEIGHT: Final = 0.3
_SURPRISE: Final = 2.0
_TRUST: Final = 0.1
"""Share of the batch size; smaller differences tell nothing about the fixed part."""


def spent_ms() -> float:
    """Return the CPU milliseconds of the calling thread and the VMs that it called."""
    return thread_cpu_ms() + called_cpu_ms()


def shared_by(partitions: int) -> int:
    """Return the factor by which a read and a turn of several partitions exceed those of one.

    From eight partitions on, the factor stays at eight.
    """
    return max(min(partitions, _SHARED_BY), 1)


class OwnTime:
    """Clock of a host without the time taken by other programs: its work, and its waits for events.

    The age of a batch is measured with it. One thread, the host's.
    """

    def __init__(
        self,
        worked_ms: Callable[[], float] = spent_ms,
        wall_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """Begin at 0; the clock starts with the first look of its thread."""
        self._clocks = worked_ms, wall_ms
        self._worked_ms = 0.0
        self.looked_ms = 0.0
        """Wall-clock time of the last look; 0 before the first."""
        self.ms = 0.0

    def look(self, *, has_waited: bool) -> tuple[float, float]:
        """Add the time since the last look; return the readings of the work and the wall clock.

        If the host waited for events meanwhile, it had nothing else to do: all of that time counts.
        """
        worked_ms, wall_ms = self._clocks[0](), self._clocks[1]()
        if self.looked_ms:
            worked, passed = worked_ms - self._worked_ms, wall_ms - self.looked_ms
            self.ms += passed if has_waited else min(worked, passed)
        self._worked_ms, self.looked_ms = worked_ms, wall_ms
        return worked_ms, wall_ms


class BatchSizer:
    """Batch size of one device host. Its thread measures; the source's thread reads the size."""

    def __init__(
        self, target_ms: float, most: int, own: OwnTime | None = None, partitions: int = 1
    ) -> None:
        """Begin small; a partition's batch has at most ``most`` events (≥ 1).

        The partitions share the host's turns; in a turn each has its own write batch.
        """
        self.own = own or OwnTime()
        """Clock for the age of batches and the work of turns."""
        self.target_ms = target_ms
        """Maximum time of a turn, milliseconds."""
        most *= shared_by(partitions)
        self._most = most
        self._cost = _Cost()
        self._passed_ms = self._worked_ms = 0.0
        self.events = min(FIRST_EVENTS, most)
        self.floor = 1
        """Minimum events of a commit while more events are available."""

    def expected_ms(self, events: int) -> float:
        """Return the expected milliseconds of a turn, from recent turns; 0 before the first."""
        return self._passed_ms * events

    @property
    def stretch(self) -> float:
        """Ratio of a turn's duration to its work, 1 to 20; competition for the cores increases it.

        It slows the source's process too, so a pause of the source means correspondingly less.
        """
        ratio = self._passed_ms / self._worked_ms if self._worked_ms else 1.0
        return min(max(ratio, 1.0), _MOST_STRETCH)

    def add(self, events: int, worked_ms: float, passed_ms: float) -> None:
        """Learn from a turn; a turn without events is ignored.

        ``worked_ms`` is the difference of ``spent_ms`` from the turn's beginning to its commit.
        ``passed_ms``, by the wall clock, is only for ``expected_ms`` and ``stretch``.
        """
        if not events:
            return
        each_ms = passed_ms / events
        self._passed_ms += _WEIGHT * (each_ms - self._passed_ms) if self._passed_ms else each_ms
        each_ms = worked_ms / events
        self._worked_ms += _WEIGHT * (each_ms - self._worked_ms) if self._worked_ms else each_ms
        cost, most = self._cost, float(self._most)
        cost.add(events, worked_ms)
        floor = wanted = most
        if cost.each_ms:
            floor = cost.fixed_ms * (1 / FIXED_SHARE - 1) / cost.each_ms
            wanted = max((self.target_ms - cost.fixed_ms) / cost.each_ms, floor)
        self.floor = min(max(int(floor), 1), self._most)
        # a small batch tells little about a large one
        grown = min(wanted, max(_GROWTH * events, self.events))
        self.events = min(max(int(grown), LEAST_EVENTS), self._most)


class _Cost:
    """Work of a turn: a fixed part and a part per event, fitted as a line through recent turns.

    Turns of one size cannot separate the parts: the fixed part then keeps its share of the whole,
    until the whole changes.
    """

    def __init__(self) -> None:
        self.fixed_ms = self.each_ms = 0.0
        self._begin(0, 0.0)

    def _begin(self, events: int, ms: float) -> None:
        self._events, self._ms = float(events), ms  # means
        self._variance = self._covariance = 0.0
        self._surprise = 0

    def add(self, events: int, ms: float) -> None:
        if self._is_other(events, ms):
            self._begin(events, ms)
            self.fixed_ms, self.each_ms = 0.0, ms / events
            return
        share = self.fixed_ms / self._ms if self._ms else 0.0
        # one turn with exceptional work, such as waking many devices, must not halve the next batch
        more, more_ms = events - self._events, ms - self._ms
        self._events += _WEIGHT * more
        self._ms += _WEIGHT * more_ms
        self._variance = (1 - _WEIGHT) * (self._variance + _WEIGHT * more * more)
        self._covariance = (1 - _WEIGHT) * (self._covariance + _WEIGHT * more * more_ms)
        most_ms = self._ms / self._events
        doubt = (_TRUST * self._events) ** 2
        each_ms = (self._covariance + doubt * (1 - share) * most_ms) / (self._variance + doubt)
        self.each_ms = min(max(each_ms, (1 - _MOST_FIXED) * most_ms), most_ms)
        self.fixed_ms = max(self._ms - self.each_ms * self._events, 0.0)

    def _is_other(self, events: int, ms: float) -> bool:
        # two successive turns that deviate in the same direction, the first at a known size
        if not self._events:
            return True
        expected_ms, before = self.fixed_ms + self.each_ms * events, self._surprise
        is_known = bool(before) or 1 / _SURPRISE <= events / self._events <= _SURPRISE
        if is_known and not expected_ms / _SURPRISE <= ms <= expected_ms * _SURPRISE:
            self._surprise = 1 if ms > expected_ms else -1
        else:
            self._surprise = 0
        return bool(self._surprise) and self._surprise == before
