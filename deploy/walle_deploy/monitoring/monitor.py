"""Takes reports of devices and counts them in the release store.

Frames arrive at least once and are counted exactly once. Frames of one partition come in order.
Each device that counts has a mark in that partition: the number of its last frame. A frame is
dropped if one of its devices has a mark at least as high. One transaction writes counts and marks,
and all processes of a store take turns. So any worker of any service may count any frame, and no
important state is in memory.

The time of a report is its arrival by the database's clock, since device clocks may be wrong.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import msgspec

from walle_deploy.monitoring.attribution import AttributedReport, ReadReceipt, attributed
from walle_deploy.monitoring.counting import ReportBatch
from walle_deploy.monitoring.folding import fold_step
from walle_deploy.store.counter import CountTransaction, Mark
from walle_deploy.store.port import ReleaseStore
from walle_stream.errors import EnvelopeError, ForbiddenError, ServiceUnreachableError
from walle_stream.faults import crash_point
from walle_stream.ports import ReportFrame
from walle_stream.wire.reports import decode_reports

_DEVICE_MARKS: Final = 32
"""Largest number of marks of one device. A device may invent any number of data directories, also
through a relay, but it drops only its own marks."""

_FOLD_MS: Final = 60_000
"""Time between two looks for windows to fold, if the last look found none."""
type Call = tuple[Sequence[ReportFrame], str]
"""Arguments of ``Monitor.take``."""


class MonitorCounts(msgspec.Struct):
    """Counts of a monitor's work, for metrics."""

    frames: int = 0
    reports: int = 0
    frames_again: int = 0
    frames_refused: int = 0
    """Malformed frames."""
    reports_refused: int = 0
    """Reports of versions that were never published, or without a device that counts."""
    bare: Counter[str] = msgspec.field(default_factory=Counter)
    """Reports of devices without a receipt, by ``TASK@VERSION``."""
    wrong: Counter[str] = msgspec.field(default_factory=Counter)
    """Reports of devices whose receipt does not match their report, by ``TASK@VERSION``."""

    def add(self, other: "MonitorCounts") -> None:
        """Add the counts of another struct."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class _Frame(NamedTuple):
    partition: tuple[str, int]
    number: int
    reports: Sequence[AttributedReport] | None

    def marks(self, published: Collection[tuple[str, str]]) -> set[Mark]:
        """Return marks of the devices that count. Other devices leave no row."""
        return {
            (device, *self.partition)
            for report in self.reports or ()
            if report.version[:2] in published
            for device in report.devices
        }


class Monitor:
    """Counts reports. Thread-safe. Only ``take`` and ``take_together`` block, on the store."""

    def __init__(
        self,
        store: ReleaseStore,
        read_receipt: ReadReceipt | None = None,
        *,
        needs_receipts: bool = False,
    ) -> None:
        """Start without counts. The store stays the caller's.

        Without ``read_receipt`` no receipt is valid. With ``needs_receipts``, devices without a
        valid receipt count for nothing and leave no row. Otherwise they count for their version,
        and in counters of their own.
        """
        self.counts = MonitorCounts()
        self._store = store
        self._attributed = partial(attributed, read=read_receipt, is_needed=needs_receipts)
        self._lock = threading.Lock()
        self._fold_ms = 0

    def take(self, frames: Sequence[ReportFrame], device: str = "") -> int:
        """Count frames once over all processes of the store; return how many are new. Blocks.

        Frames of one partition come in order, and may come again. A ``device`` may report only
        for itself; without one, the caller may report for any device.

        Raises:
            ForbiddenError: The device reports for another one; no frame was counted.
            ServiceUnreachableError: The frames may or may not be stored. Give them again, here or
                to another worker.
        """
        [result] = self.take_together([(frames, device)])
        if isinstance(result, ForbiddenError):
            raise result
        return result

    def take_together(self, calls: Sequence[Call]) -> list[int | ForbiddenError]:
        """Do the work of ``take`` for many calls, in one transaction. Blocks.

        The result has, for each call, the number that ``take`` would return or its error.

        Raises:
            ServiceUnreachableError: As in ``take``.
        """
        turns = [self._read(*call) for call in calls]
        counts = MonitorCounts()
        with self._store.counting() as transaction:
            good = [turn for turn in turns if not isinstance(turn, ForbiddenError)]
            new = iter(self._count(transaction, good, counts))
            crash_point("reports.before")
        crash_point("reports.after")
        with self._lock:
            self.counts.add(counts)
        return [turn if isinstance(turn, ForbiddenError) else next(new) for turn in turns]

    def figures(self) -> dict[str, dict[str, int]]:
        """Return the counts, in the form of ``Parts.figures_beside`` of the release service."""
        with self._lock:
            counts = self.counts
            return {
                "report_frames_total": {
                    "counted": counts.frames,
                    "again": counts.frames_again,
                    "malformed": counts.frames_refused,
                },
                "reports_total": {"counted": counts.reports, "refused": counts.reports_refused},
                "reports_without_receipt_total": dict(counts.bare),
                "reports_with_invalid_receipt_total": dict(counts.wrong),
            }

    def _read(self, frames: Sequence[ReportFrame], device: str) -> list[_Frame] | ForbiddenError:
        result = []
        for frame in frames:
            reports = None
            with suppress(EnvelopeError):
                decoded = decode_reports(frame.body)
                names = (runs.device_id for report in decoded for runs in report.devices)
                if device and (others := {*names} - {device}):
                    return ForbiddenError(
                        f"device {device!r} sent a report of {min(others)[:256]!r}: a device "
                        "may report only for itself"
                    )
                reports = [self._attributed(report) for report in decoded]
            result.append(_Frame((frame.incarnation, frame.partition), frame.number, reports))
        return result

    def _count(
        self,
        transaction: CountTransaction,
        turns: Sequence[Sequence[_Frame]],
        counts: MonitorCounts,
    ) -> list[int]:
        now_ms = transaction.now_ms()
        batch, new = ReportBatch(), [0] * len(turns)
        names = {
            report.version[:2]
            for turn in turns
            for frame in turn
            for report in frame.reports or ()
            if f"{report.version.task}{report.version.version}".isprintable()
        }
        published = transaction.published(names)
        frames = [
            (turn_index, frame, frame.marks(published))
            for turn_index, turn in enumerate(turns)
            for frame in turn
        ]
        stored = transaction.marks(set[Mark]().union(*(marks for _, _, marks in frames)))
        moved: dict[Mark, int] = {}
        for turn_index, frame, marks in frames:
            if any(moved.get(mark, stored.get(mark, -1)) >= frame.number for mark in marks):
                counts.frames_again += 1
            elif _add(batch, frame, published, counts):
                moved |= dict.fromkeys(marks, frame.number)
                new[turn_index] += 1
        number = batch.write(transaction, now_ms)
        transaction.put_marks(moved, now_ms)
        if added := {device for device, _, _ in moved.keys() - stored.keys()}:
            transaction.trim_marks(added, _DEVICE_MARKS)
        if abs(now_ms - self._fold_ms) >= _FOLD_MS and not fold_step(transaction, number):
            self._fold_ms = now_ms
        return new


def _add(
    batch: ReportBatch, frame: _Frame, published: Collection[tuple[str, str]], counts: MonitorCounts
) -> bool:
    if frame.reports is None:
        counts.frames_refused += 1
        return False
    counted = 0
    for report in frame.reports:
        if report.version[:2] in published:
            name = f"{report.version.task}@{report.version.version}"
            counts.bare[name] += report.bare
            counts.wrong[name] += report.wrong
            counted += batch.add(report)
    counts.reports += counted
    counts.reports_refused += len(frame.reports) - counted
    counts.frames += bool(counted)
    return bool(counted)


class ReportGatherer:
    """Stores reports of many requests together, so no request needs a thread. One event loop."""

    def __init__(self, monitor: Monitor) -> None:
        """Start without reports. The monitor stays the caller's."""
        self._monitor = monitor
        self._waiting: list[tuple[Call, asyncio.Future[int]]] = []
        self._storing: asyncio.Task[None] | None = None

    async def receive(self, frames: Sequence[ReportFrame], device: str = "") -> int:
        """Run ``Monitor.take`` in a thread, for all waiting requests at once."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(((frames, device), future))
        if self._storing is None:
            self._storing = asyncio.create_task(self._store())
        return await future

    async def _store(self) -> None:
        while self._waiting:
            part, self._waiting = self._waiting, []
            results = await asyncio.to_thread(self._record, [call for call, _ in part])
            for (_, future), result in zip(part, results, strict=True):
                if future.done():
                    continue  # the request was cancelled
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        self._storing = None

    def _record(self, calls: list[Call]) -> list[int | Exception]:
        try:
            return [*self._monitor.take_together(calls)]
        except Exception as error:  # noqa: BLE001 - raised where the call was made
            if len(calls) == 1 or isinstance(error, ServiceUnreachableError):
                return [error] * len(calls)
            # frames that the store refuses must not block those of other requests
            return [result for call in calls for result in self._record([call])]
