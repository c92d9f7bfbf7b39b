"""Reads a file from its beginning and hands out what lies behind the offsets.

Rows before the offsets are read, too: they rebuild, exactly, which identities
were seen, what is held back and how far the order has come; what they release
is dropped up to each partition's position. So an offset is a few bytes however
much is held, and a restart gives exactly the rest.

Per row, in this order: readable? (else ``decode`` or ``oversized``), device,
time and identity (else ``invalid``), duplicate, late, events (else
``invalid``; such a row leaves no trace: neither its identity nor its time
count). An accepted row moves the watermark (the highest time of accepted rows
less the lateness); every event at or below it is released in the order (event
time, row, order in the row). A row is late when its time is below an event
time that was already released. An event whose own time lies before its row's
time may be released behind later ones: lateness gives it time to find its place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Any, Final
from zlib import crc32

import msgspec

from walle_connectors.dead_letters import record_dead_letter
from walle_connectors.file_stream import READ_ERRORS, FileStream
from walle_connectors.files.lane import Held, Lane, Scope
from walle_connectors.files.mapping import InvalidRow, RowResult
from walle_connectors.files.model import OrderModel
from walle_connectors.files.offsets import decode_positions, known_digests, known_ends
from walle_connectors.files.records import BrokenRow, Record
from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.faults import crash_point
from walle_stream.ports import DeadLetter, DeadLetterRoute, SourceBatch, Unread
from walle_stream.types import device_id_problem, partition_of

FLUSH_ROWS: Final = 16_384
"""Partly filled batches are handed out after this many rows."""

FLUSH_BYTES: Final = 8 * 2**20
"""Or after this many bytes of rows."""

_DEVICES_CACHED: Final = 65_536

type _Home = tuple[Lane, Scope]
type _Known = tuple[str, int, Any]


class FilesReader:
    """A file that was opened at its partitions' offsets. One thread."""

    def __init__(  # noqa: PLR0913 - one caller, by keyword
        self,
        *,
        stream: FileStream,
        records: Iterator[Record],
        build: Callable[[Any], RowResult],
        order: OrderModel,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None,
    ) -> None:
        """Begin.

        Args:
            stream: Taken: closed by ``close``.
            records: Its rows.
            build: The row function.
            order: How rows are ordered.
            offsets: By partition.
            partition_count: Number of partitions.
            batch_events: Most events in a batch.
            limit: Most rows to read beyond the offsets.

        Raises:
            SourceError: An offset is not of a file source.
        """
        positions = decode_positions(offsets, partition_count)
        self._lanes = [Lane(number, position) for number, position in enumerate(positions)]
        self._known_ends = known_ends(positions)
        self._known_digests = known_digests(positions)
        self._digest = 0
        self._replay_step = max(position.step for position in positions)
        accounted = max(position.row_count for position in positions)
        self._last_row = None if limit is None else accounted + limit
        self._stream = stream
        self._records = records
        self._build = build
        self._lateness_ms = order.lateness
        self._all = Scope() if order.scope == "global" else None
        self.batch_events = batch_events
        """Most events in a batch; may be changed between reads."""
        self.keeps_raw = False
        """Whether batches carry their raw rows."""
        self._rows = 0
        self._step = 0
        self._flush_row = FLUSH_ROWS
        self._ends: tuple[int, ...] = ()
        self._seen: set[Any] = set()
        self._homes: dict[str, _Home] = {}
        self._ready: list[SourceBatch] = []
        self._failure: SourceError | None = None
        self._is_done = False
        self._is_replayed = False

    # The port

    def read(self) -> Sequence[SourceBatch]:
        """Read on until a batch is full, or for a bounded number of rows.

        Raises:
            SourceError: The file cannot be read on.
            SourceChangedError: It became shorter, or gives other events.
        """
        if self._failure is not None:
            raise self._failure
        if not self._is_done:
            try:
                self._advance()
            except SourceChangedError as error:
                self._ready.clear()
                self._failure = error
                raise
            except READ_ERRORS as error:
                # rows before the damage are given first, then this is raised
                self._failure = self._damaged(error)
                self._flush()
                if not self._ready:
                    raise self._failure from error
        return self._hand_out()

    def drain(self) -> Sequence[SourceBatch]:
        """Return what was read but not yet returned; releases nothing."""
        if self._failure is None and not self._is_done:
            self._flush()
        self._is_done = True
        return self._hand_out()

    @property
    def is_done(self) -> bool:
        """Whether the end or the limit was reached and all was returned."""
        return self._is_done

    @property
    def progress(self) -> float:
        """Share of the file that was read, 0–1."""
        return self._stream.progress

    @property
    def unread(self) -> Unread:
        """Bytes of the file that were not read yet."""
        return self._stream.unread

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._stream.close()

    # Reading

    def _advance(self) -> None:
        while not self._ready:
            end = self._next_known_end()
            if end == self._rows:
                self._end()
            elif self._rows == self._last_row:
                self._flush()
                self._is_done = True
                return
            elif self._rows >= self._flush_row:
                self._flush()
                return
            else:
                bounds = (self._flush_row, end, self._last_row)
                stop = min(bound for bound in bounds if bound is not None)
                if not self._read_rows(stop):
                    self._finish()
                    return
            if self._step >= self._replay_step and not self._is_replayed:
                self._check_replay()

    def _next_known_end(self) -> int | None:
        place = len(self._ends)
        return self._known_ends[place] if place < len(self._known_ends) else None

    def _read_rows(self, stop: int) -> bool:  # noqa: C901, PLR0912, PLR0915 - the hot loop
        """Read up to a row, or until batches are ready; False at the end of the file."""
        build, homes, seen, ready = self._build, self._homes, self._seen, self._ready
        lateness_ms, batch_events = self._lateness_ms, self.batch_events
        rows, step, replay_step = self._rows, self._step, self._replay_step
        room, keeps_raw = FLUSH_BYTES, self.keeps_raw
        digest = self._digest
        try:
            for record in islice(self._records, stop - rows):
                rows += 1
                step += 1
                # without its end: the last line may get one when the file grows
                self._digest = digest = crc32(record[2].rstrip(b"\r\n"), digest)
                if step <= replay_step:
                    self._check_digest(step)
                values = record[0]
                result = values if values.__class__ is BrokenRow else build(values)
                if not isinstance(result, tuple):
                    self._refuse(step, record, result)
                    continue
                device_id, time_ms, identity, now, timed = result
                home = homes.get(device_id) or self._home(device_id)
                if home is None:
                    problem = f"device: {device_id_problem(device_id)}"
                    self._refuse(step, record, InvalidRow(problem, ""))
                    continue
                lane, scope = home
                if identity in seen or time_ms < scope.released_ms:
                    self._pass_over(step, record, home, result[:3])
                    continue
                if identity is not None:
                    seen.add(identity)
                if step > lane.done_step:
                    lane.is_fresh = False
                    lane.accepted_rows += 1
                    lane.raw_bytes += record[1]
                    if keeps_raw and record[1]:
                        lane.raw.append(record[2])
                if time_ms > scope.highest_ms:  # noqa: PLR1730 - max() takes longer
                    scope.highest_ms = time_ms
                watermark_ms = scope.highest_ms - lateness_ms
                if watermark_ms != time_ms or step <= replay_step:
                    self._release(step, scope.order(_places(step, lane, result), watermark_ms))
                else:
                    # the usual case: the row's own events (``now``) come behind all that is due
                    held = scope.held
                    for place, (at_ms, event) in enumerate(timed):
                        heappush(held, (at_ms, step, place, lane, event))
                    at_ms = -1
                    while held and held[0][0] <= time_ms:
                        at_ms, _, _, target, event = heappop(held)
                        target.events.append(event)
                        if len(target.events) >= batch_events:
                            self._cut_full(step, target)
                    if now:
                        at_ms = time_ms
                        lane.events.extend(now)
                        if len(lane.events) >= batch_events:
                            self._cut_full(step, lane)
                    if at_ms > scope.released_ms:  # noqa: PLR1730 - same
                        scope.released_ms = at_ms
                room -= record[1]
                if ready or room < 0:
                    break
            else:
                return rows == stop
        finally:
            self._rows, self._step = rows, step
        if room < 0:
            self._flush_row = rows
        return True

    def _release(self, step: int, due: list[Held]) -> None:
        for _, _, _, lane, event in due:
            if lane.to_skip:
                lane.to_skip -= 1
                continue
            lane.events.append(event)
            if len(lane.events) >= self.batch_events:
                self._cut_full(step, lane)

    def _cut_full(self, step: int, lane: Lane) -> None:
        count = self.batch_events
        events = lane.events
        for first in range(0, len(events) - count + 1, count):
            lane.events = events[first : first + count]
            self._ready.append(lane.cut(step, self._ends, self._digest))
        lane.events = events[len(events) - len(events) % count :]

    def _pass_over(self, step: int, record: Record, home: _Home, row: _Known) -> None:
        """Count a duplicate or a late row."""
        lane, scope = home
        device_id, time_ms, identity = row
        is_duplicate = identity in self._seen
        if identity is not None:
            self._seen.add(identity)
        if step <= lane.done_step:
            return
        self._take_raw(lane, record)
        if is_duplicate:
            lane.duplicate_rows += 1
            return
        lane.late_rows += 1
        reason = f"its time {time_ms} is below {scope.released_ms}, which was released already"
        lane.dead_letters.append(self._letter(record, "late", reason, device_id))

    def _refuse(self, step: int, record: Record, row: BrokenRow | InvalidRow) -> None:
        """Make a dead letter of a row that cannot be read or computed."""
        device_id = (row.device_id if isinstance(row, InvalidRow) else None) or ""
        home = (self._homes.get(device_id) or self._home(device_id)) if device_id else None
        if home is not None and isinstance(row, InvalidRow) and row.known is not None:
            time_ms, identity = row.known
            if identity in self._seen or time_ms < home[1].released_ms:
                self._pass_over(step, record, home, (device_id, time_ms, identity))
                return
        lane = self._lanes[0] if home is None else home[0]
        if step <= lane.done_step:
            return
        self._take_raw(lane, record)
        route = row.route if isinstance(row, BrokenRow) else "invalid"
        device_id = "" if home is None else device_id
        letter = self._letter(record, route, row.reason, device_id, row.error)
        if isinstance(row, BrokenRow) and row.digest:
            letter = msgspec.structs.replace(letter, digest=row.digest, size_bytes=0)
        lane.dead_letters.append(letter)

    def _take_raw(self, lane: Lane, record: Record) -> None:
        lane.is_fresh = False
        lane.raw_bytes += record[1]
        if self.keeps_raw and record[1]:
            lane.raw.append(record[2])

    def _letter(
        self, record: Record, route: DeadLetterRoute, reason: str, device_id: str, error: str = ""
    ) -> DeadLetter:
        _, _, text, line, place = record
        where = f"{self._stream.name}:{line}"
        return record_dead_letter(
            text,
            route=route,
            reason=reason,
            origin=where if place < 0 else f"{where}[{place}]",
            device_id=device_id,
            error=error,
        )

    def _home(self, device_id: str) -> _Home | None:
        """Find a device's partition and order, None for what cannot be a device."""
        if device_id_problem(device_id) is not None:
            return None
        lane = self._lanes[partition_of(device_id, len(self._lanes))]
        scope = self._all
        if scope is None:
            scope = Scope()  # a device's order must be kept
        elif len(self._homes) >= _DEVICES_CACHED:
            self._homes.clear()
        home = self._homes[device_id] = (lane, scope)
        return home

    # Handing out

    def _hand_out(self) -> list[SourceBatch]:
        batches = self._ready[:]
        self._ready.clear()
        if batches:
            crash_point("read.batch")
        return batches

    def _flush(self) -> None:
        self._flush_row = self._rows + FLUSH_ROWS
        for lane in self._lanes:
            if not lane.is_empty:
                self._ready.append(lane.cut(self._step, self._ends, self._digest))

    def _end(self) -> None:
        """Release everything and tell the partitions that were not told yet."""
        step = self._step = self._step + 1
        self._check_digest(step)
        self._ends = (*self._ends, self._rows)
        scopes = (
            [self._all] if self._all is not None else [home[1] for home in self._homes.values()]
        )
        held: list[Held] = []
        for scope in scopes:
            held.extend(scope.release_all())
        held.sort()
        self._release(step, held)
        self._ready.extend(
            lane.cut(step, self._ends, self._digest, is_end=True)
            for lane in self._lanes
            if not lane.has_end(step)
        )

    def _finish(self) -> None:
        """The file has no more rows: this is an end, unless it was one before.

        Raises:
            SourceChangedError: It had more rows before.
        """
        if self._next_known_end() is not None or self._step < self._replay_step:
            raise SourceChangedError(
                f"source {self._stream.name!r} ends after row {self._rows}, but more of it was "
                "read before: give the whole file, or start with a new --data-dir"
            )
        if not self._is_replayed:
            self._check_replay()
        if not self._ends or self._ends[-1] != self._rows:
            self._end()
        self._is_done = True

    def _check_replay(self) -> None:
        self._is_replayed = True
        if any(lane.to_skip for lane in self._lanes):
            raise SourceChangedError(
                f"source {self._stream.name!r} gave other events up to row {self._rows} before: "
                "give the same file, or start with a new --data-dir"
            )

    def _check_digest(self, step: int) -> None:
        known = self._known_digests.get(step)
        if known is not None and known != self._digest:
            raise SourceChangedError(
                f"source {self._stream.name!r} differs in its first {step} rows from what was "
                "read before (the last line may have been incomplete): give the same file, or "
                "start with a new --data-dir"
            )

    def _damaged(self, error: BaseException) -> SourceError:
        return SourceError(
            f"source {self._stream.name!r} cannot be read on after row {self._rows} ({error}): "
            "repair the file and run again; rows up to there are kept"
        )


def _places(step: int, lane: Lane, result: tuple[Any, ...]) -> list[Held]:
    _, time_ms, _, now, timed = result
    places: list[Held] = [(time_ms, step, place, lane, event) for place, event in enumerate(now)]
    places += [(at_ms, step, place, lane, event) for place, (at_ms, event) in enumerate(timed)]
    return places
