"""Thread that moves merged features from the tables' logs to a sink.

A sink that is unreachable, or refuses features, is retried for ever, and delays no other sink.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event, Thread
from typing import Any, Final, NamedTuple

from walle_stream.clock import monotonic_ms
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.faults import crash_point
from walle_stream.ports import FeatureSink
from walle_stream.spec.connectors import load_connector
from walle_stream.spec.loader import LoadedPipeline
from walle_stream.wire.metrics_text import Metrics

_log = logging.getLogger(__name__)

BACKOFF_S: Final = 0.2
"""Pause before the second attempt; doubled for each further one, up to 10 s."""

_BACKOFF_MAX_S: Final = 10.0
_LOOK_S: Final = 0.05
_JOIN_S: Final = 12.0  # `walle cloud` ends within 30 s, with any number of hanging sinks
_LAG: Final = "Upper bound of the merged features that a sink has yet to take."


class _Done(NamedTuple):
    behind: int
    after_ms: float  # earliest time of the next write


class SinkPump:
    """Delivery thread of one sink, for all tables of a process."""

    def __init__(
        self,
        name: str,
        sink: FeatureSink,
        tables: Callable[[], Sequence[PartitionTable]],
        backoff_s: float = BACKOFF_S,
    ) -> None:
        """Start the thread and take over the sink; ``tables`` returns the open tables."""
        self.name = name
        self._sink, self._tables, self._backoff_s = sink, tables, backoff_s
        self._done: dict[str, _Done] = {}
        self._failures = 0
        self._said = ""
        self._ends, self._due_ms = Event(), 0.0
        self._thread = Thread(target=self._run, name=f"walle-sink-{name}", daemon=True)
        self._thread.start()

    @property
    def lag(self) -> int:
        """Number of merged features that the sink has yet to take, in all tables."""
        return sum(
            log.end - max(log.places[self.name], self._behind(table))
            for table in self._tables()
            if (log := table.sink_log) is not None
        )

    def end(self) -> None:
        """Deliver the present features while the sink takes them, then end; returns at once."""
        if not self._ends.is_set():
            self._due_ms = monotonic_ms() + 1_000.0 * _JOIN_S
            self._ends.set()

    def close(self) -> None:
        """End, and wait for the thread; blocks for at most 12 s since ``end``."""
        self.end()
        self._thread.join(max(self._due_ms - monotonic_ms(), 0.0) / 1_000.0)
        lag = self.lag
        if lag:
            _log.warning(
                "sink %r: %d features wait (%s): the next run delivers them",
                self.name,
                lag,
                self._said or "it is slow",
            )
        try:
            self._sink.close()
        except Exception as error:  # noqa: BLE001 - missing features come again
            self._say(f"it cannot be closed: {error or type(error).__name__}")

    def _run(self) -> None:
        pause_s = self._backoff_s
        while True:
            is_last = self._ends.is_set()
            try:
                tables = list(self._tables())
                # after a failure begin with another table: a feature may be refused for ever
                first = self._failures % max(len(tables), 1)
                moved = sum(self._serve(each, is_last) for each in tables[first:] + tables[:first])
            except Exception as error:  # noqa: BLE001 - a sink may be foreign code
                self._say(str(error) or type(error).__name__)
                self._failures += 1
                if is_last:
                    return
                self._ends.wait(pause_s)
                pause_s = min(2 * pause_s, _BACKOFF_MAX_S)
                continue
            pause_s = self._backoff_s
            if not moved:
                if is_last:
                    return
                self._ends.wait(_LOOK_S)

    def _serve(self, table: PartitionTable, is_last: bool) -> bool:
        log = table.sink_log
        if log is None or log.ready <= max(log.places[self.name], self._behind(table)):
            return False
        done = self._done.get(table.lane)
        if done is not None and not is_last and monotonic_ms() < done.after_ms:
            return False
        try:
            log.sync()
            written = self._sink.write(table.lane, log.rows(self.name))
            is_part = written.place < written.behind
            wait_ms = 1_000.0 * self._sink.pause_s if is_part else 0.0
            self._done[table.lane] = _Done(written.behind, monotonic_ms() + wait_ms)
            crash_point("sink.after")
            if written.place != log.places[self.name]:
                log.move(self.name, written.place)
        except Exception:
            # a sink that reads from a closed table may raise an error of its own
            if any(each is table for each in self._tables()):
                raise
            return False  # the table was given away: its features belong to the next owner
        self._said = ""
        return True

    def _behind(self, table: PartitionTable) -> int:
        done = self._done.get(table.lane)
        return done.behind if done is not None else 0

    def _say(self, why: str) -> None:
        if why != self._said:
            self._said = why
            _log.warning("sink %r waits: %s", self.name, why)


def show_lags(metrics: Metrics, lags: Mapping[str, int]) -> None:
    """Add a gauge of the features that each sink lacks."""
    gauge = metrics.gauge("walle_sink_lag_features", _LAG, ["sink"])
    for name, lag in lags.items():
        gauge.set(lag, sink=name)


@contextmanager
def serving_sinks(
    loaded: LoadedPipeline[Any], tables: Callable[[], Sequence[PartitionTable]]
) -> Iterator[list[SinkPump]]:
    """Serve a pipeline's sinks; the exit blocks for some seconds if a sink is unreachable.

    ``tables`` returns the open tables.

    Raises:
        WalleError: A sink's extra is not installed, or its folder cannot be used.
    """
    spec = loaded.pipeline.spec
    with ExitStack() as stack:
        pumps = []
        for name, model in loaded.sinks.items():
            identity = f"walle-{loaded.pipeline.metadata.name}-{name}"
            sink = load_connector(spec.sinks[name].connector).open_sink(model, identity)
            pumps.append(SinkPump(name, sink, tables))
            stack.callback(pumps[-1].close)
        for pump in pumps:
            stack.callback(pump.end)  # all end before the first wait, as a sink may hang
        yield pumps
