"""The core of one partition as its host sees it: batches and bytes, no object per event.

``PartitionMachine`` is the reference. Another implementation gives the same bytes for all that
is run or written; ``testing.core_suite`` compares them. It does no I/O and looks at no clock.

A commit: ``take`` each batch, whose ``absent`` devices were ``activate``d before; ``answer``
what came down; run what was woken; ``complete`` what the runs did; ``install``; write the batches,
``numbers`` and ``delta``; ``mark_committed``, ``passivate``. What a batch did to a device is
*dirty* until ``delta`` hands it to the store, which may be many batches later. The caller
keeps the batches in between (``oldest_dirty`` tells since when), and gives them again after a
death. A device that includes a batch already, as its row says, passes over it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from walle_stream.stream.commands import Runs, RunTask, StreamCounts, Told, Woken
from walle_stream.stream.snapshots import DeviceRows
from walle_stream.stream.task_sets import SetDefinition
from walle_stream.wire.event_batch import EventBatch

type FindSet = Callable[[str], SetDefinition]
"""Gives the tasks of devices by their set's id; the definition's by ``DEFAULT_SET``."""

type MakeCore = Callable[[FindSet], Core]
"""Makes the core of a partition without devices."""


class Core(Protocol):
    """All devices of one partition. One thread.

    What comes out depends on the order of the partition's events alone, never on how they
    were cut into batches, nor on which devices are in memory.
    """

    number: int
    """Of the batch at hand, set by the caller; ascending."""
    watermark_ms: int
    """Highest ingest time so far, -1 at first; set by the caller at the beginning."""
    counts: StreamCounts
    """Since the last commit; replaced by it."""

    @property
    def active_count(self) -> int:
        """How many devices are in memory."""

    @property
    def oldest_dirty(self) -> int | None:
        """Number of the first batch of which something is not in the store; None for none."""

    # Devices in memory

    def absent(self, batch: EventBatch, *, is_end: bool = False) -> list[str]:
        """Return the devices that ``take`` needs next and that are not in memory.

        Each once: those with events, then those whose timers are due.
        """

    def activate(
        self, device_id: str, row: bytes | None, pages: Callable[[], Iterable[tuple[int, bytes]]]
    ) -> None:
        """Bring a device into memory.

        A device never seen has no row. ``pages`` reads its (page ordinal, row), ascending; it is
        called where pages are open.

        Raises:
            StoreCorruptedError: A row is damaged, or an open page has none.
        """

    def is_active(self, device_id: str) -> bool:
        """Return whether a device is in memory."""

    def arm(self, device_id: str, deadline_ms: int) -> None:
        """Remember the timer of a device at rest (when a partition is opened)."""

    def excess(self, keep: int) -> list[str]:
        """Return the devices that are beyond ``keep``, those not touched for longest."""

    def passivate(self, device_ids: Iterable[str]) -> None:
        """Forget devices in memory; only after a commit with their ``delta``."""

    # A batch

    def take(self, batch: EventBatch, *, is_end: bool = False) -> Woken:
        """Take a batch, which lets its events go, and return what came of it.

        The batch is in the partition's order, its devices in memory. ``is_end``: the source's
        natural end follows, every timer fires.
        """

    def answer(self, told: Iterable[Told]) -> Runs:
        """Take what the cloud says, behind the events so far, and return what it woke.

        Its devices are in memory, and exist from then on.
        """

    def complete[T](
        self, results: Iterable[tuple[RunTask, Sequence[T]]]
    ) -> list[tuple[RunTask, int, T]]:
        """Number what the commit's runs, in any order, emitted, per device.

        Returns (run, sequence number, emit), by device, in the order (trigger position, task,
        index).
        """

    def complete_calls[T](
        self, calls: Iterable[tuple[RunTask, Sequence[T]]]
    ) -> list[tuple[RunTask, int, str, T]]:
        """Number the calls of the cloud that the commit's runs, in any order, made.

        Returns (run, number, name of the call, call), in the order of ``complete``.
        """

    def install(self, device_id: str, task_set: str) -> None:
        """Give a device in memory the tasks of a set, from its next event on.

        Its open pages stay, and so do its ongoing matches: one whose path stands in the
        new conditions, too, goes on where it is.
        """

    def task_set(self, device_id: str) -> str:
        """Return the id of the set that a device in memory has."""

    # A commit

    def numbers(self) -> list[tuple[str, int, int]]:
        """Return (device, next sequence number, next number of a call) where they moved.

        Every commit writes them: they depend on what the scripts did, which giving the
        batch again does not tell.
        """

    def set_numbers(self, device_id: str, next_number: int, next_call: int) -> None:
        """Set what ``numbers`` said of a device in memory, behind a batch given again."""

    def delta(self, until: int | None = None, also: Iterable[str] = ()) -> list[DeviceRows]:
        """Return what the commit writes of dirty devices, which are clean then.

        Those dirty since the batch ``until`` or an earlier one (None: all); ``also`` where they are
        dirty.
        """

    def mark_committed(self) -> None:
        """Forget what was pending, because the commit succeeded."""
