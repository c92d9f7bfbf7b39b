"""Reads a file from its beginning, and returns events after the offsets.

It also reads rows before the offsets. These rebuild, exactly, the set of seen identities, the held
events, and the progress of the order. Events that they release are dropped up to each partition's
position. So an offset has a few bytes however much is held, and a restart gives exactly the rest.

The checks of a row come in this order: readable (else ``decode`` or ``oversized``), device, time
and identity (else ``invalid``), duplicate, late, events (else ``invalid``). In the last case the
row leaves no trace: neither its identity nor its time counts.

An accepted row moves the watermark, which is the highest time of accepted rows less the lateness.
Every event at or below the watermark is released, ordered by event time, row, and place in the row.
A row is late if its time is below an event time that was already released. An event whose own time
is before its row's time may be released after later ones; a larger lateness prevents this.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, override
from zlib import crc32

import msgspec

from walle_connectors.file_stream import READ_ERRORS, FileReader, FileStream
from walle_connectors.files.model import OrderModel
from walle_connectors.files.offsets import FilePosition, Replayed
from walle_connectors.files.scope import Held, RowLane, Scope
from walle_stream.errors import SourceChangedError
from walle_stream.events import Event
from walle_stream.ports import DeadLetter, DeadLetterRoute
from walle_stream.reading import Lane, Opening, record_dead_letter
from walle_stream.reading.mapping.compiling import InvalidRow, RowResult
from walle_stream.reading.mapping.records import BrokenRow, Record, Row
from walle_stream.reading.reader import FLUSH_BYTES
from walle_stream.types import device_id_problem

FLUSH_ROWS: Final = 8_192
"""The same as ``FLUSH_BYTES``, in rows."""

_DEVICES_CACHED: Final = 65_536

type _Place = tuple[RowLane, Scope]
type _Known = tuple[str, int, Any]


class FileRows(NamedTuple):
    """Functions that make a file's rows."""

    records: Iterator[Record]
    """The file's rows, from its beginning."""
    build: Callable[[Any], RowResult]
    """The row function."""
    decode: Callable[[bytes], list[Row]]
    """Makes rows of one record."""


class FilesReader(FileReader[FilePosition]):
    """A file opened at its partitions' offsets. One thread."""

    lane_type = RowLane
    _lanes: dict[int, RowLane]  # type: ignore[assignment] # of that type

    def __init__(
        self, stream: FileStream, opening: Opening, rows: FileRows, order: OrderModel
    ) -> None:
        """Start reading; takes over the stream, which ``rows`` reads.

        Raises:
            SourceError: An offset is not of a file source.
        """
        super().__init__(stream, opening, FilePosition(), 0)
        self._replayed = Replayed({number: lane.done for number, lane in self._lanes.items()})
        self._records, self._build, self._decode = rows
        self._lateness_ms = order.lateness
        self._all = Scope() if order.scope == "global" else None
        self._digest = self._step = 0
        self._flush_step = FLUSH_ROWS
        self._ends: tuple[int, ...] = ()
        self._seen: set[Any] = set()
        self._places: dict[str, _Place] = {}
        self._is_replayed = False

    @override
    def _position(self, lane: Lane[FilePosition], *, is_end: bool = False) -> FilePosition:
        return FilePosition(
            step=self._step,
            events=lane.done.events + len(lane.events),
            ends=self._ends,
            is_end=is_end,
            digest=self._digest,
        )

    # Reading

    @override
    def _go_on(self) -> bool:
        if self._step >= self._flush_step + FLUSH_ROWS:
            self._flush()
            return True
        end = self._next_known_end()
        stop = min(self._last_row, self._row + FLUSH_ROWS, sys.maxsize if end is None else end)
        try:
            is_there = self._read_rows(stop)
        except READ_ERRORS as error:
            raise self._stream.failure(f"after row {self._row}", error) from error
        if not is_there:
            self._reach_end()
        elif end == self._row:
            self._end()
        if self._step >= self._replayed.step and not self._is_replayed:
            self._check_replay()
        return True

    @property
    @override
    def _is_due(self) -> bool:
        return self._step >= self._flush_step or super()._is_due

    @override
    def _flush(self) -> None:
        self._flush_step = self._step + FLUSH_ROWS
        super()._flush()

    def _next_known_end(self) -> int | None:
        place = len(self._ends)
        return self._replayed.ends[place] if place < len(self._replayed.ends) else None

    def _read_rows(self, stop: int) -> bool:  # noqa: C901, PLR0912, PLR0915 - the hot loop
        """Read up to a row, or until batches are ready; False at the end of the file."""
        build, places, seen, ready = self._build, self._places, self._seen, self._ready
        lateness_ms, taken = self._lateness_ms, 0
        rows, step, replay_step = self._row, self._step, self._replayed.step
        keeps_raw, digest = self.keeps_raw, self._digest
        room = 2 * FLUSH_BYTES - self._passed
        try:
            for record in islice(self._records, stop - rows):
                rows += 1
                step += 1
                # without its line end, which a last line may get when the file grows
                self._digest = digest = crc32(record[2].rstrip(b"\r\n"), digest)
                if step <= replay_step:
                    self._check_digest(step)
                values = record[0]
                result = values if values.__class__ is BrokenRow else build(values)
                if not isinstance(result, tuple):
                    self._refuse(step, record, result)
                    continue
                device_id, time_ms, identity, now, timed = result
                place = places.get(device_id) or self._place(device_id)
                if place is None:
                    problem = f"device: {device_id_problem(device_id)}"
                    self._refuse(step, record, InvalidRow(problem, ""))
                    continue
                lane, scope = place
                if identity in seen or time_ms < scope.released_ms:
                    self._pass_over(step, record, place, result[:3])
                    continue
                if identity is not None:
                    seen.add(identity)
                if step > lane.done.step:
                    lane.accepted_rows += 1
                    lane.raw_bytes += record[1]
                    if keeps_raw and record[1]:
                        lane.raw.append(record[2])
                if time_ms > scope.highest_ms:  # noqa: PLR1730 - max() takes longer
                    scope.highest_ms = time_ms
                watermark_ms = scope.highest_ms - lateness_ms
                self._step = step
                if watermark_ms != time_ms or step <= replay_step:
                    self._release(scope.order(_held(step, lane, result), watermark_ms))
                else:
                    # the usual case: the row's own events (``now``) come after all due events
                    if timed or scope.held:
                        self._release(scope.order(_timed(step, lane, timed), time_ms))
                    if now:
                        scope.released_ms = time_ms
                        self._give(lane, now)
                taken += record[1]
                if ready or taken > room:
                    break
            else:
                return rows == stop
        finally:
            self._row, self._step = rows, step
            self._passed += taken
        return True

    def _release(self, due: list[Held]) -> None:
        for _, _, _, lane, event in due:
            if lane.to_skip:
                lane.to_skip -= 1
                continue
            self._give(lane, (event,))

    def _give(self, lane: RowLane, events: Iterable[Event]) -> None:
        for event in events:
            lane.events.append(event)
            self._count += 1
            if self._count >= self.batch_events:
                self._cut()

    def _pass_over(self, step: int, record: Record, place: _Place, row: _Known) -> None:
        lane, scope = place
        device_id, time_ms, identity = row
        is_duplicate = identity in self._seen
        if identity is not None:
            self._seen.add(identity)
        if step <= lane.done.step:
            return
        self._take_raw(lane, record)
        if is_duplicate:
            lane.duplicate_rows += 1
            return
        lane.late_rows += 1
        reason = f"its time {time_ms} is below {scope.released_ms}, which was released already"
        lane.dead_letters.append(self._letter(record, "late", reason, device_id))

    def _refuse(self, step: int, record: Record, row: BrokenRow | InvalidRow) -> None:
        device_id = (row.device_id if isinstance(row, InvalidRow) else None) or ""
        place = (self._places.get(device_id) or self._place(device_id)) if device_id else None
        if place is not None and isinstance(row, InvalidRow) and row.known is not None:
            time_ms, identity = row.known
            if identity in self._seen or time_ms < place[1].released_ms:
                self._pass_over(step, record, place, (device_id, time_ms, identity))
                return
        lane = self._lanes[0] if place is None else place[0]
        if step <= lane.done.step:
            return
        self._take_raw(lane, record)
        route = row.route if isinstance(row, BrokenRow) else "invalid"
        device_id = "" if place is None else device_id
        letter = self._letter(record, route, row.reason, device_id, row.error)
        if isinstance(row, BrokenRow) and row.digest:
            letter = msgspec.structs.replace(letter, digest=row.digest, size_bytes=0)
        lane.dead_letters.append(letter)

    def _take_raw(self, lane: RowLane, record: Record) -> None:
        lane.raw_bytes += record[1]
        if self.keeps_raw and record[1]:
            lane.raw.append(record[2])

    def _letter(
        self, record: Record, route: DeadLetterRoute, reason: str, device_id: str, error: str = ""
    ) -> DeadLetter:
        _, _, text, line, place = record
        where = f"{self._name}:{line}"
        return record_dead_letter(
            text,
            route=route,
            reason=reason,
            origin=where if place < 0 else f"{where}[{place}]",
            device_id=device_id,
            error=error,
        )

    def _place(self, device_id: str) -> _Place | None:
        """Return a device's partition and order, or None for an invalid device id."""
        if device_id_problem(device_id) is not None:
            return None
        lane = self._lanes[self._number_of(device_id)]
        scope = self._all
        if scope is None:
            scope = Scope()  # a device's order must be kept
        elif len(self._places) >= _DEVICES_CACHED:
            self._places.clear()
        place = self._places[device_id] = (lane, scope)
        return place

    # Ends, and earlier reads

    def _end(self) -> None:
        self._step += 1
        self._check_digest(self._step)
        self._ends = (*self._ends, self._row)
        scopes = [self._all] if self._all is not None else [x[1] for x in self._places.values()]
        self._release(sorted(held for scope in scopes for held in scope.release_all()))
        self._tell_end()

    def _reach_end(self) -> None:
        """Handle the end of the file: it is a new end, unless it was known before.

        Raises:
            SourceChangedError: The file had more rows before.
        """
        if self._next_known_end() is not None or self._step < self._replayed.step:
            raise SourceChangedError(
                f"source {self._name!r} ends after row {self._row}, but more of it was "
                "read before: use the whole file, or start with a new --data-dir"
            )
        if not self._is_replayed:
            self._check_replay()
        if not self._ends or self._ends[-1] != self._row:
            self._end()
        self._finish()

    def _check_replay(self) -> None:
        self._is_replayed = True
        if any(lane.to_skip for lane in self._lanes.values()):
            raise SourceChangedError(
                f"source {self._name!r} gave other events up to row {self._row} before: "
                "use the same file, or start with a new --data-dir"
            )

    def _check_digest(self, step: int) -> None:
        known = self._replayed.digests.get(step)
        if known is not None and known != self._digest:
            raise SourceChangedError(
                f"source {self._name!r} differs in its first {step} rows from what was "
                "read before (the last line may have been incomplete): use the same file, or "
                "start with a new --data-dir"
            )

    @override
    def _time_of(self, tail: bytes) -> int:
        for values, _ in self._decode(tail.rstrip(b"\r\n").rpartition(b"\n")[2])[-1:]:
            result = None if isinstance(values, BrokenRow) else self._build(values)
            if isinstance(result, tuple):
                return result[1]
        return -1


def _held(step: int, lane: RowLane, result: tuple[Any, ...]) -> list[Held]:
    _, time_ms, _, now, timed = result
    held: list[Held] = [(time_ms, step, place, lane, event) for place, event in enumerate(now)]
    return held + _timed(step, lane, timed)


def _timed(step: int, lane: RowLane, timed: Iterable[tuple[int, Event]]) -> list[Held]:
    return [(at_ms, step, place, lane, event) for place, (at_ms, event) in enumerate(timed)]
