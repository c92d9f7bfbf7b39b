"""A source that a bench drives: it gives what a script yields, in the pipeline's own thread.

Between two pieces the script can wait until all was committed, and look at the
process as it stands. Each partition's events are the same in every process, and
those before its offset are left out: so a data directory can be opened again.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from fleet_parts.events import PARTITIONS, Pieces
from walle_stream.actors import device_host
from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.turns.calling import Calling, Runner
from walle_stream.actors.turns.turn import Delivery
from walle_stream.errors import WalleError
from walle_stream.ports import EventBatch, SourceBatch, SourceCounts, Unread
from walle_stream.spec.strict import Strict
from walle_stream.types import Placing

_COMMIT_TIMEOUT_S: Final = 600.0


class Turn(NamedTuple):
    """A batch that was committed."""

    batch: SourceBatch
    waited_ms: float
    """From the source's hand to the commit, wall clock."""
    waited_cpu_ms: float
    """The same on the clock of the process's CPU time."""
    took_ms: float
    """Of it taking the batch, and the share, by events, of its partitions' commit, wall clock."""
    took_cpu_ms: float
    """The same in CPU of the host's thread."""
    take_ms: float
    """Of it until the devices are in memory and have the batch, wall clock."""


class Stage:
    """The part of a run that a script sees."""

    def __init__(self) -> None:
        """Begin with nothing given."""
        self.turns: list[Turn] | None = None
        """Gets every turn while it is a list."""
        self._given = 0
        self._committed = 0
        self._handed: dict[tuple[int, bytes], tuple[float, float]] = {}
        self._failure: BaseException | None = None
        self._changed = Condition()

    def give(self, batch: SourceBatch) -> None:
        """Take note of a batch that leaves the source."""
        self._given += 1
        times = (time.perf_counter(), time.process_time())
        self._handed[batch.partition, batch.offset] = times

    def settle(self) -> None:
        """Wait until all that was given is committed.

        Raises:
            RuntimeError: A commit failed.
            TimeoutError: It is not after ten minutes.
        """
        with self._changed:
            is_over = self._changed.wait_for(
                lambda: self._failure or self._committed == self._given, _COMMIT_TIMEOUT_S
            )
            if self._failure is not None:
                raise RuntimeError("a host failed in a commit") from self._failure
            if not is_over:
                raise TimeoutError(f"{self._given - self._committed} batches were never committed")

    def watch(self) -> None:
        """Be told of every turn of this process from now on."""
        take, run_together = PartitionHost.take, device_host.run_together
        taken: dict[int, list[tuple[SourceBatch, float, float]]] = {}

        def watched_take(host: PartitionHost, deliveries: Sequence[Delivery]) -> None:
            if deliveries[-1].batch.offset == host.offset:
                take(
                    host, deliveries
                )  # behind a commit all is handed over again, to be passed over
                return
            pending = taken.setdefault(host.number, [])
            # a copy: the host lets the events go
            fresh = [replace(each.batch) for each in deliveries[len(pending) :]]
            began, began_cpu = time.perf_counter(), time.thread_time()
            take(host, deliveries)
            took = time.perf_counter() - began, time.thread_time() - began_cpu
            pending.extend((batch, *took) for batch in fresh)

        def watched_together(
            pool: Runner, turns: Mapping[int, Calling[None]]
        ) -> dict[int, WalleError | None]:
            with self._told_of_failures():
                began, began_cpu = time.perf_counter(), time.thread_time()
                results = run_together(pool, turns)
                took, took_cpu = time.perf_counter() - began, time.thread_time() - began_cpu
                ended, ended_cpu = time.perf_counter(), time.process_time()
                for error in results.values():
                    if error is not None:
                        raise error
                # only of this host's thread: each host has its own partitions
                found = [each for number in turns for each in taken.pop(number, [])]
                all_events = sum(len(batch.events) for batch, _, _ in found)
                committed = []
                for batch, before, before_cpu in found:
                    given, given_cpu = self._handed.pop((batch.partition, batch.offset))
                    share = len(batch.events) / all_events
                    committed.append(
                        Turn(
                            batch,
                            (ended - given) * 1e3,
                            (ended_cpu - given_cpu) * 1e3,
                            (took * share + before) * 1e3,
                            (took_cpu * share + before_cpu) * 1e3,
                            before * 1e3,
                        )
                    )
                with self._changed:
                    if self.turns is not None:
                        self.turns += committed
                    self._committed += len(committed)
                    self._changed.notify_all()
            return results

        PartitionHost.take = watched_take  # type: ignore[method-assign]
        device_host.run_together = watched_together  # type: ignore[assignment]

    @contextmanager
    def _told_of_failures(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            raise


type Script = Callable[[Stage], Iterator[Pieces]]
"""Actions of a benchmark on its fleet."""


class FleetModel(Strict):
    """No keys: the script is set in the process."""

    connector: str = "fleet"


class FleetReader:
    """Gives what the script yields. One thread."""

    def __init__(self, script: Script, stage: Stage, offsets: Mapping[int, bytes]) -> None:
        """Begin."""
        self.batch_events = 1
        self.is_done = False
        self.progress = -1.0
        self.unread = Unread()
        self._stage = stage
        self._pieces = script(stage)
        self._left_out = {number: int.from_bytes(each) for number, each in offsets.items()}
        self._counts = dict.fromkeys(range(PARTITIONS), 0)

    def read(self) -> Sequence[SourceBatch]:
        """Go on with the script."""
        try:
            pieces = next(self._pieces)
        except StopIteration:
            self.is_done = True
            return ()
        batches = []
        for number, events in pieces:
            size = max(self.batch_events, 1)
            for first in range(0, len(events), size):
                batch = self._batch(number, events[first : first + size])
                if batch is not None:
                    batches.append(batch)
        for batch in batches:
            self._stage.give(batch)
        return batches

    def drain(self) -> Sequence[SourceBatch]:
        """Return nothing: nothing is held back."""
        self.is_done = True
        return ()

    def close(self) -> None:
        """End the script."""
        self._pieces.close()  # type: ignore[attr-defined]

    def _batch(self, number: int, events: list[Any]) -> SourceBatch | None:
        before = self._counts[number]
        self._counts[number] += len(events)
        events = events[max(self._left_out.get(number, 0) - before, 0) :]
        if not events:
            return None
        count = len(events)
        return SourceBatch(
            partition=number,
            events=EventBatch(events),
            offset=self._counts[number].to_bytes(8),
            counts=SourceCounts(source_rows=count, accepted_rows=count),
            dead_letters=[],
            size_bytes=count * 500,
        )


class FleetSource:
    """The source of a fleet."""

    fingerprint: Mapping[str, str | int] = {"fleet": 1}
    reads_apart = False

    def __init__(self, script: Script, stage: Stage) -> None:
        """Keep what to do."""
        self._script, self._stage = script, stage

    def check_fingerprint(self, stored: Mapping[str, str | int]) -> None:
        """Take any."""

    def check_placing(self, partition_count: int, placing: Placing) -> None:
        """Take any."""

    def open(self, offsets: Mapping[int, bytes], partition_count: int, *_: object) -> FleetReader:
        """Open at the partitions' offsets.

        Raises:
            ValueError: Another number of partitions.
        """
        if partition_count != PARTITIONS:
            raise ValueError(f"the fleet lives in {PARTITIONS} partitions, not {partition_count}")
        return FleetReader(self._script, self._stage, offsets)


class FleetConnector:
    """What the YAML names; ``script`` and ``stage`` are set before it is opened."""

    name: Final = "fleet"
    model: Final = FleetModel

    def __init__(self) -> None:
        """Without a script."""
        self.script: Script = lambda _stage: iter(())
        self.stage = Stage()

    def open(self, _model: FleetModel) -> FleetSource:
        """Make the source."""
        return FleetSource(self.script, self.stage)


CONNECTOR: Final = FleetConnector()
"""What the YAML names."""
