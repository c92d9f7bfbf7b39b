"""How many events a batch may have: as many as a turn takes in its target time.

Large batches spread what a turn costs at least (a VM's call, a write batch, a
frame) over more events, small ones are committed sooner. Where batches are cut
changes no feature and no state; so time may be measured here.

What counts is what a turn *works*: the host thread's CPU, and its VMs' while it waits
for them. What others take of the cores counts nothing: smaller batches give none of it
back, they only cost more. Nor do waits (a pause before a run is tried again, a model
elsewhere, a disk): they are no shorter for fewer events.
"""

from collections.abc import Callable
from typing import Final

from walle_stream.clock import monotonic_ms, thread_cpu_ms
from walle_stream.vm.task_pool import called_cpu_ms

FIRST_EVENTS: Final = 256
"""Most events of a batch before any turn was measured: a script's runs may be long."""

LEAST_EVENTS: Final = 8
"""A batch is never cut smaller, whatever a turn takes."""

FIXED_SHARE: Final = 1 / 3
"""Most of a turn's work that may be the same for any batch: where it would be more,
waiting for events is cheaper than committing."""

_SHARED_BY: Final = 8
_MOST_STRETCH: Final = 20.0
_MOST_FIXED: Final = 0.9
_GROWTH: Final = 2.0
_WEIGHT: Final = 0.3
_SURPRISE: Final = 2.0
_TRUST: Final = 0.1
"""Batches that differ by less than this share of their size say nothing of what is fixed."""


def spent_ms() -> float:
    """Return what the calling thread and the VMs that it called have worked, milliseconds."""
    return thread_cpu_ms() + called_cpu_ms()


def shared_by(partitions: int) -> int:
    """Return how many times the events of one partition's a read and a turn of some have.

    Sixteen partitions that have a part in it are worth as much as eight.
    """
    return max(min(partitions, _SHARED_BY), 1)


class OwnTime:
    """The time of a host without what others took: its work, and its waits for events.

    The age of a batch is measured with it. One thread, the host's.
    """

    def __init__(
        self,
        worked_ms: Callable[[], float] = spent_ms,
        wall_ms: Callable[[], float] = monotonic_ms,
    ) -> None:
        """Begin at 0, when the thread that has it looks first."""
        self._clocks = worked_ms, wall_ms
        self._worked_ms = 0.0
        self.looked_ms = 0.0
        """When it was looked at last, by the wall's clock; 0 before the first time."""
        self.ms = 0.0

    def look(self, *, has_waited: bool) -> tuple[float, float]:
        """Go on by what passed since the last look; return the host's and the wall's clocks.

        A host that had to wait for events meanwhile had nothing else to do: what passed is its own.
        """
        worked_ms, wall_ms = self._clocks[0](), self._clocks[1]()
        if self.looked_ms:
            worked, passed = worked_ms - self._worked_ms, wall_ms - self.looked_ms
            self.ms += passed if has_waited else min(worked, passed)
        self._worked_ms, self.looked_ms = worked_ms, wall_ms
        return worked_ms, wall_ms


class BatchSizer:
    """Batch size of one device host. Its thread measures, the source's thread asks."""

    def __init__(
        self, target_ms: float, most: int, own: OwnTime | None = None, partitions: int = 1
    ) -> None:
        """Begin small; a partition's batch has at most ``most`` events (≥ 1).

        The partitions share the host's turns; each has a write batch of its own in one.
        """
        self.own = own or OwnTime()
        """Says how old batches are, and what turns work."""
        self.target_ms = target_ms
        """What a turn should take at most, milliseconds."""
        most *= shared_by(partitions)
        self._most = most
        self._cost = _Cost()
        self._passed_ms = self._worked_ms = 0.0
        self.events = min(FIRST_EVENTS, most)
        self.floor = 1
        """Fewer events are worth no commit while more are at hand."""

    def expected_ms(self, events: int) -> float:
        """Return how long a turn should last, as turns of late did; 0 before the first."""
        return self._passed_ms * events

    @property
    def stretch(self) -> float:
        """How many times its work a turn lasts, 1 to 20: others that want the cores stretch it.

        Whoever feeds the host is stretched as well: a pause of it says so much less.
        """
        ratio = self._passed_ms / self._worked_ms if self._worked_ms else 1.0
        return min(max(ratio, 1.0), _MOST_STRETCH)

    def add(self, events: int, worked_ms: float, passed_ms: float) -> None:
        """Learn from a turn; one without events teaches nothing.

        ``worked_ms`` is what ``spent_ms`` gives from its beginning to its commit; ``passed_ms``, by
        the wall's clock, is for ``expected_ms`` and ``stretch`` alone.
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
        # a small batch says little about a large one
        grown = min(wanted, max(_GROWTH * events, self.events))
        self.events = min(max(int(grown), LEAST_EVENTS), self._most)


class _Cost:
    """What a turn works: a fixed part, and one for each event; a line through turns of late.

    Turns of one size cannot tell the parts from each other: then the fixed part keeps its
    share of the whole, until the whole becomes another one.
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
        # what one turn works in excess, a waking of many devices, must not halve the next
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
        # two turns, one behind the other, of which the first is explained by no other size
        if not self._events:
            return True
        expected_ms, before = self.fixed_ms + self.each_ms * events, self._surprise
        is_known = bool(before) or 1 / _SURPRISE <= events / self._events <= _SURPRISE
        if is_known and not expected_ms / _SURPRISE <= ms <= expected_ms * _SURPRISE:
            self._surprise = 1 if ms > expected_ms else -1
        else:
            self._surprise = 0
        return bool(self._surprise) and self._surprise == before
