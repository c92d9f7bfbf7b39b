"""The interface of a partition's core for its host: batches and bytes, no object per event.

``PartitionMachine`` is the reference. Every other implementation gives the same bytes for all runs
and rows; ``testing.core_suite`` compares them. A core does no I/O and reads no clock.

The steps of a commit:

1. ``take`` each batch, after ``activate`` for its ``absent`` devices.
2. ``answer`` replies and messages, run the woken tasks, and ``complete`` the results.
3. ``install`` task sets, write the batches, ``numbers`` and ``delta``.
4. ``mark_committed`` and ``passivate``.

A batch's changes of a device are *dirty* until ``delta`` returns them for the store, perhaps many
batches later. The caller keeps the batches in between (from ``oldest_dirty`` on), and gives them
again after a crash. A device whose row includes a batch already ignores it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from walle_stream.stream.commands import Runs, RunTask, StreamCounts, Told, Woken
from walle_stream.stream.snapshots import DeviceRows
from walle_stream.stream.task_sets import SetDefinition
from walle_stream.wire.event_batch import EventBatch

type FindSet = Callable[[str], SetDefinition]
"""Returns the tasks of a set by its id; ``DEFAULT_SET`` has the definition's tasks."""

type MakeCore = Callable[[FindSet], Core]
"""Makes the core of a partition without devices."""


class Core(Protocol):
    """All devices of one partition, for one thread.

    The output depends on the order of the partition's events alone, never on their cut into
    batches, nor on the devices in memory.
    """

    number: int
    """Ascending number of the current batch, set by the caller."""
    watermark_ms: int
    """Highest ingest time so far, -1 at first; set by the caller at the beginning."""
    counts: StreamCounts
    """Counts since the last commit, which replaces them."""

    @property
    def active_count(self) -> int:
        """Number of devices in memory."""

    @property
    def oldest_dirty(self) -> int | None:
        """Number of the first batch with changes that are not in the store; None for none."""

    # Devices in memory

    def absent(self, batch: EventBatch, *, is_end: bool = False) -> list[str]:
        """Return the devices that ``take`` needs next and that are not in memory.

        Each appears once: first devices with events, then devices with due timers.
        """

    def activate(
        self, device_id: str, row: bytes | None, pages: Callable[[], Iterable[tuple[int, bytes]]]
    ) -> None:
        """Bring a device into memory.

        A new device has no row. ``pages`` reads its (page ordinal, row), ascending; it is called
        only if pages are open.

        Raises:
            StoreCorruptedError: A row is damaged, or an open page has no row.
        """

    def is_active(self, device_id: str) -> bool:
        """Return whether a device is in memory."""

    def arm(self, device_id: str, deadline_ms: int) -> None:
        """Remember the timer of a device that is not in memory (when a partition is opened)."""

    def excess(self, keep: int) -> list[str]:
        """Return the least recently used devices, as many as exceed ``keep``."""

    def passivate(self, device_ids: Iterable[str]) -> None:
        """Drop devices from memory; only after a commit with their ``delta``."""

    # A batch

    def take(self, batch: EventBatch, *, is_end: bool = False) -> Woken:
        """Take a batch, which then drops its events, and return the results.

        The batch has the partition's order, and its devices are in memory. ``is_end`` means that
        the source's natural end follows, so every timer fires.
        """

    def answer(self, told: Iterable[Told]) -> Runs:
        """Take replies and messages after the events so far, and return the runs that they wake.

        Their devices are in memory, and exist from then on.
        """

    def complete[T](
        self, results: Iterable[tuple[RunTask, Sequence[T]]]
    ) -> list[tuple[RunTask, int, T]]:
        """Number the emits of the commit's runs for each device; runs may have any order.

        Returns (run, sequence number, emit), by device, in the order (trigger position, task,
        index).
        """

    def complete_calls[T](
        self, calls: Iterable[tuple[RunTask, Sequence[T]]]
    ) -> list[tuple[RunTask, int, str, T]]:
        """Number the calls of the commit's runs; runs may have any order.

        Returns (run, number, name of the call, call), in the order of ``complete``.
        """

    def install(self, device_id: str, task_set: str) -> None:
        """Give a device in memory the tasks of a set, from its next event on.

        Its open pages and ongoing matches stay. A match continues if the new conditions
        have its path, too.
        """

    def task_set(self, device_id: str) -> str:
        """Return the id of the task set of a device in memory."""

    # A commit

    def numbers(self) -> list[tuple[str, int, int]]:
        """Return changed numbers: (device, next sequence number, next number of a call).

        Every commit writes them, because they depend on the scripts, and the batch alone
        does not give them again.
        """

    def set_numbers(self, device_id: str, next_number: int, next_call: int) -> None:
        """Set stored ``numbers`` of a device in memory, after a batch that was given again."""

    def delta(self, until: int | None = None, also: Iterable[str] = ()) -> list[DeviceRows]:
        """Return the rows of dirty devices for the commit; the devices are clean then.

        The devices are those dirty since the batch ``until`` or an earlier one (None for all), and
        the dirty ones in ``also``.
        """

    def mark_committed(self) -> None:
        """Forget pending changes, because the commit succeeded."""
