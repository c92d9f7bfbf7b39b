"""Ends a worker that has records to process and does not get on.

Faust is known to stop silently after some rebalances: partitions assigned, lag, no
progress, no error. Nothing is lost by ending then: the next process goes on from the
committed offsets. A topic that is deleted, made anew or given more partitions under it is
passed over as silently: Faust gives up the partitions for good, or drops the new topic's
records, whose offsets it has seen. ``StallRule`` and ``TopicRule`` are the pure rules;
``Watchdog`` observes in the worker's loop with a connection of its own, and a thread ends the
process, so that a loop which itself no longer turns is noticed as well.
"""

import asyncio
import logging
import os
import sys
import threading
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from walle_connectors.faust.group import held_partitions
from walle_connectors.faust.preflight import addressed, connect, shapes
from walle_connectors.faust.settings import KafkaPart
from walle_stream.clock import monotonic_ms
from walle_stream.errors import CloudStalledError, TunnelError

_log = logging.getLogger(__name__)

PATIENCE_MS_DEFAULT: Final = 60_000
"""How long there may be lag without progress."""

_ASK_S: Final = 5.0
_READ_MS: Final = 200


class Place(NamedTuple):
    """How far a partition is."""

    done: int
    """Grows with what was read and processed; in what way does not matter."""
    is_behind: bool
    """Whether there is more to process."""


class StallRule:
    """Says for how long there was lag without progress. Thread-safe: no state is shared."""

    def __init__(self, patience_ms: int) -> None:
        """Begin.

        Args:
            patience_ms: > 0.
        """
        self._patience_ms = patience_ms
        self._done: dict[Any, tuple[int, float]] = {}

    def observe(self, now_ms: float, places: Mapping[Any, Place]) -> str | None:
        """Take an observation.

        Args:
            now_ms: Monotonic.
            places: Of every assigned partition.

        Returns:
            What is wrong, when a partition was behind for too long without progress.
        """
        before, self._done = self._done, {}
        for name, place in places.items():
            done, since_ms = before.get(name, (None, now_ms))
            if done != place.done or not place.is_behind:
                since_ms = now_ms
            self._done[name] = (place.done, since_ms)
        stalled = sorted(
            str(name)
            for name, (_, since_ms) in self._done.items()
            if now_ms - since_ms >= self._patience_ms
        )
        if not stalled:
            return None
        shown = ", ".join(stalled[:5]) + (", ..." if len(stalled) > len(stalled[:5]) else "")
        return f"no progress for {self._patience_ms / 1000:g} s with records waiting in {shown}"


class TopicRule:
    """Says when a topic is no longer the one that the worker began with."""

    def __init__(self, topic: str) -> None:
        """Begin."""
        self._topic = topic
        self._partitions = 0
        self._said = ""

    def observe(self, partitions: int, places: Mapping[int, tuple[int, int]]) -> str | None:
        """Take an observation.

        Args:
            partitions: How many it has; 0 when it is not there.
            places: By assigned partition, an offset that was read or is to be read next, and, from
                later, its end.

        Returns:
            What is wrong, when two observations that follow each other said the same: a broker
            that is only starting may not know all of its topics yet.
        """
        before, self._said = self._said, self._look(partitions, places)
        return self._said if self._said and self._said == before else None

    def _look(self, partitions: int, places: Mapping[int, tuple[int, int]]) -> str:
        if not partitions:
            return f"topic {self._topic!r} is not on the broker any more"
        self._partitions = self._partitions or partitions
        if partitions != self._partitions:
            return f"topic {self._topic!r} has {partitions} partitions now, not {self._partitions}"
        if any(end < read for read, end in places.values()):
            return f"topic {self._topic!r} ends before what was read of it: it was made anew"
        return ""


class Watchdog:
    """Watches an app; started and stopped with it."""

    def __init__(
        self,
        app: Any,
        part: KafkaPart,
        patience_ms: int = PATIENCE_MS_DEFAULT,
        end: Callable[[str], None] | None = None,
    ) -> None:
        """Make it; ``run`` observes.

        Args:
            app: Faust's.
            part: Broker and topic that are watched.
            patience_ms: How long there may be lag without progress.
            end: Ends the process with a reason; replaced in tests.
        """
        self._app = app
        self._part = part
        self._patience_ms = patience_ms
        self._end = end or end_process
        self._rule = StallRule(patience_ms)
        self._topic_rule = TopicRule(part.topic)
        self._beat_ms = monotonic_ms()
        self._is_stopped = threading.Event()
        self.places: dict[Any, Place] = {}
        """The last observation; empty when the broker could not be asked."""

    async def run(self) -> None:
        """Observe until the app stops; a coroutine of the worker's loop.

        When it ends earlier, for whatever reason, nobody watches: the guard ends the process then.

        Raises:
            CancelledError: The app stops.
        """
        guard = threading.Thread(target=self._guard, name="walle-watchdog", daemon=True)
        self._beat_ms = monotonic_ms()
        guard.start()
        consumer = None
        try:
            while True:
                await asyncio.sleep(self._patience_ms / 1000 / 10)
                self._beat_ms = monotonic_ms()
                try:
                    async with asyncio.timeout(_ASK_S):
                        if consumer is None:
                            consumer = await connect(
                                self._part, auto_offset_reset="earliest", enable_auto_commit=False
                            )
                        problem = await self._look_at_topic(consumer)
                        self.places = await self._look(consumer)
                except CancelledError:
                    if _is_cancelled():
                        raise
                    self._forget("a rebalance cancelled the question")
                    continue
                except (KafkaError, TunnelError, OSError, TimeoutError) as error:
                    self._forget(str(error) or type(error).__name__)
                    continue
                reason = problem or self._rule.observe(monotonic_ms(), self.places)
                if reason is not None:
                    self._end(reason)
        finally:
            if self._app.should_stop:
                self._is_stopped.set()
            if consumer is not None:
                await consumer.stop()

    def _forget(self, why: str) -> None:
        # whether there is lag is not known: a broker that is away is no stall
        _log.warning("the watchdog cannot ask the broker: %s", why)
        self.places = {}
        self._rule = StallRule(self._patience_ms)

    async def _look_at_topic(self, consumer: Any) -> str | None:
        mine = self._app.consumer
        read = {
            TopicPartition(tp.topic, tp.partition): mine._read_offset[tp]  # noqa: SLF001 - as below
            for tp in mine.assignment()
            if tp.topic == self._part.topic
        }
        # not before what was read is known: the ends are from later
        found = (await shapes(consumer)).get(self._part.topic)
        ends = await consumer.end_offsets(list(read)) if found and read else {}
        places = {tp.partition: (read[tp] or 0, end) for tp, end in ends.items()}
        return self._topic_rule.observe(found.partitions if found else 0, places)

    async def _look(self, consumer: Any) -> dict[Any, Place]:
        # what Faust read and acknowledged is in no public attribute of its consumer
        mine = self._app.consumer
        assigned = [tp for tp in mine.assignment() if tp.topic == self._part.topic]
        if not assigned:
            return await self._look_at_others(consumer)
        asked = [TopicPartition(tp.topic, tp.partition) for tp in assigned]
        ends = await consumer.end_offsets(asked)
        recovered = sum(each or 0 for each in self._app.tables.recovery.active_offsets.values())
        places = {}
        for tp, end in zip(assigned, map(ends.__getitem__, asked), strict=True):
            committed = mine._committed_offset[tp] or 0  # noqa: SLF001 - see above
            read = mine._read_offset[tp] or 0  # noqa: SLF001 - see above
            position = await mine.position(tp)
            waiting = len(mine._acked[tp])  # noqa: SLF001 - see above
            # behind what was fetched, or with fetched records that are not yet committed
            is_behind = position is None or position < end or committed < read
            if not is_behind and read <= committed < end:
                # it was fetched, and nobody was given it: Faust drops what comes while partitions
                # move. Or the last offsets are of no record, but of transactions
                is_behind = await _has_record(consumer, tp, committed)
            places[tp] = Place(committed + read + waiting + recovered, is_behind)
        return places

    async def _look_at_others(self, consumer: Any) -> dict[Any, Place]:
        # one that has nothing to do is well if others have; but a topic that was away for a
        # moment Faust gives to nobody, and does not look for again
        held = await held_partitions(addressed(self._part), self._app.conf.id, self._part.topic)
        if held is None or held:
            return {}
        there = (await shapes(consumer)).get(self._part.topic)
        numbers = range(there.partitions if there else 0)
        ends = await consumer.end_offsets([TopicPartition(self._part.topic, n) for n in numbers])
        return {tp: Place(0, is_behind=True) for tp, end in ends.items() if end > 0}

    def _guard(self) -> None:
        while not self._is_stopped.wait(self._patience_ms / 1000 / 10):
            silent_ms = monotonic_ms() - self._beat_ms
            if silent_ms > 2 * self._patience_ms:
                self._end(
                    f"the event loop or its watchdog stood still for {silent_ms / 1000:.0f} s"
                )


def _is_cancelled() -> bool:
    # Faust's consumer hands on a cancellation in its own thread as if this task were cancelled
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _has_record(consumer: Any, place: Any, offset: int) -> bool:
    asked = TopicPartition(place.topic, place.partition)
    consumer.assign([asked])
    consumer.seek(asked, offset)
    return bool(await consumer.getmany(asked, timeout_ms=_READ_MS, max_records=1))


def end_process(reason: str) -> None:
    """Say why and end at once; a client that is stuck may never close."""
    error = CloudStalledError(f"{reason}: the process ends, start it again and it goes on")
    sys.stderr.write(f"walle: {error}\n")
    sys.stderr.flush()
    os._exit(error.exit_code)
