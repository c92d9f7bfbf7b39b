"""A file of events whose lines arrive on a fixed schedule, whether or not anybody is ready.

The schedule is an open loop: line ``i`` arrives at ``start + i / rate`` seconds, and is handed out
at the next read after that. If the pipeline is late, lines pile up, and all of their waiting
counts, as it does for a phone that has sent its event. A source that waited for the pipeline would
leave out just the slow moments (coordinated omission). Lines are decoded when they are handed out,
as many as have arrived: the ``events`` connector reads blocks ahead, which nothing live could.
"""

import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from latency_parts.quiet import Neighbours
from walle_stream.clock import monotonic_ms, process_cpu_s
from walle_stream.events import Event
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts, Unread
from walle_stream.spec.paths import PathField
from walle_stream.spec.strict import Strict
from walle_stream.types import Placing

POLL_MS: Final = 2.0
"""A line waits at most so long for more, as one does in the fetch of a broker's client; and so
long a read waits for the first."""

_BUFFER_BYTES: Final = 2**20


class Schedule:
    """When lines arrive, and when the exits among them did. The reader's thread writes."""

    def __init__(self, events_per_s: float = 0.0, gather_ms: float = POLL_MS) -> None:
        """Plan; the schedule starts with the first read.

        Args:
            events_per_s: How many arrive; 0 for as many as are taken.
            gather_ms: How long a line waits at most for more, as in a fetch; 0 where events
                happen in the process that takes them.
        """
        self.events_per_s = events_per_s
        self.gather_ms = gather_ms
        self.step_ms = 1e3 / events_per_s if events_per_s else 0.0
        """From one line to the next."""
        self.start_ms = 0.0
        """Monotonic clock at which the first line arrives."""
        self.exits: dict[tuple[str, str], float] = {}
        """By device and page instance: monotonic clock at which the exit arrived."""
        self.clocks: list[tuple[float, float]] = []
        """Monotonic clock and CPU time of the process, milliseconds, whenever looked at."""
        self.cores: dict[str, float | None] = {}
        """Who had the machine's cores from the first line to the last."""
        self._neighbours = Neighbours()

    def arrival_ms(self, line: int) -> float:
        """Return when a line arrives, monotonic clock.

        Args:
            line: From 0.
        """
        return self.start_ms + line * self.step_ms

    def start(self) -> None:
        """Have the first line arrive now."""
        self._neighbours = Neighbours()
        self.start_ms = self.look()

    def end(self) -> None:
        """Take note that the last line was handed out; the pipeline's threads still live."""
        self.cores = self._neighbours.report()

    def look(self) -> float:
        """Take note of both clocks, return the monotonic one."""
        now_ms = monotonic_ms()
        self.clocks.append((now_ms, process_cpu_s() * 1e3))
        return now_ms


class PacedReader:
    """Hands out lines that have arrived, of one partition. One thread."""

    def __init__(self, path: Path, schedule: Schedule, batch_events: int, limit: int) -> None:
        """Begin.

        Args:
            path: JSON Lines.
            schedule: When lines arrive.
            batch_events: Most events in a batch.
            limit: Lines to read.
        """
        self.batch_events = batch_events
        self.keeps_raw = False
        self._schedule = schedule
        self._limit = limit
        self._given = 0
        self._file = path.open("rb", _BUFFER_BYTES)
        self._decode_lines = msgspec.json.Decoder(Event).decode_lines

    def read(self) -> Sequence[SourceBatch]:
        """Return lines that have arrived; waits ``POLL_MS`` for some at most.

        Raises:
            ValueError: The file has too few.
        """
        schedule, first = self._schedule, self._given
        if not first:
            schedule.start()
        count = self._arrived() if schedule.events_per_s else self.batch_events
        lines = list(islice(self._file, min(count, self._limit - first)))
        if not lines:
            if count:
                raise ValueError(f"the file ends after {first} lines of {self._limit}")
            return ()
        events = self._decode_lines(b"".join(lines))
        self._given += len(lines)
        now_ms = schedule.look()
        arrived_ms = None
        if schedule.events_per_s:
            arrived_ms = now_ms = schedule.arrival_ms(first)
        for event in events:
            if event.kind == "page_exit":
                # what arrives twice counts when it arrives first
                schedule.exits.setdefault((event.device_id, event.page_instance), now_ms)
            now_ms += schedule.step_ms
        if self.is_done:
            schedule.end()
        size_bytes = sum(map(len, lines))
        return (
            SourceBatch(
                partition=0,
                events=EventBatch(events),
                offset=self._given.to_bytes(8),
                counts=SourceCounts(len(lines), len(lines), raw_bytes=size_bytes),
                dead_letters=[],
                size_bytes=size_bytes,
                arrived_ms=arrived_ms,
            ),
        )

    def drain(self) -> Sequence[SourceBatch]:
        """Return nothing: nothing is held back."""
        return ()

    @property
    def is_done(self) -> bool:
        """Whether all was handed out."""
        return self._given == self._limit

    @property
    def unread(self) -> Unread:
        """Nothing that anybody knows."""
        return Unread()

    @property
    def progress(self) -> float:
        """Share of the lines that was read, 0-1."""
        return self._given / self._limit

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _arrived(self) -> int:
        schedule, most = self._schedule, self.batch_events
        first_ms = schedule.arrival_ms(self._given)
        full_ms = schedule.arrival_ms(self._given + most - 1)
        now_ms = schedule.look()
        wait_ms = min(first_ms + schedule.gather_ms, full_ms) - now_ms
        if wait_ms > 0:
            # where lines are seldom, the host has other things to look after meanwhile
            time.sleep(min(wait_ms, POLL_MS) / 1e3)
            now_ms = schedule.look()
        if now_ms < first_ms:
            return 0
        return min(1 + int((now_ms - first_ms) / schedule.step_ms), most)


class PacedModel(Strict):
    """Where the file is: the schedule is set in the process."""

    connector: str = "paced"
    path: PathField


class PacedSource:
    """A file of events, on a schedule. It is read once: no offset is gone back to."""

    fingerprint: Mapping[str, str | int] = {"paced": 1}
    reads_apart = False

    def __init__(self, path: Path, schedule: Schedule) -> None:
        """Keep both."""
        self._path, self._schedule = path, schedule

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Take any."""

    def check_placing(self, partition_count: int, placing: Placing) -> None:
        """Take any."""

    def open(
        self,
        offsets: Mapping[int, bytes],
        partition_count: int,
        batch_events: int,
        limit: int | None = None,
        *_: object,
    ) -> PacedReader:
        """Open at the beginning.

        Raises:
            ValueError: Not a new data directory of one partition, or no limit.
        """
        if offsets or partition_count != 1 or not limit:
            raise ValueError("a schedule needs a new data directory, 1 partition and a limit")
        return PacedReader(self._path, self._schedule, batch_events, limit)


class PacedConnector:
    """What the YAML names; ``schedule`` is set before it is opened."""

    name: Final = "paced"
    model: Final = PacedModel

    def __init__(self) -> None:
        """As fast as lines are taken."""
        self.schedule = Schedule()

    def open(self, model: PacedModel) -> PacedSource:
        """Make the source."""
        return PacedSource(model.path, self.schedule)


CONNECTOR: Final = PacedConnector()
"""What the YAML names."""
