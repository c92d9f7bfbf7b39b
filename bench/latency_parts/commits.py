"""The commits of a benchmark's own process, as it observes them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from walle_stream.actors.partition import PartitionHost
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.calling import Calling
from walle_stream.clock import monotonic_ms, process_cpu_s


class Commit(NamedTuple):
    """A commit that had events."""

    partition: int
    at_ms: float
    """Monotonic clock when it returned."""
    at_cpu_ms: float
    """CPU time of the process then."""
    events: int
    """Of its partition so far."""
    features: list[bytes]
    """JSON."""


class Commits:
    """All commits from now on, until the process ends. The hosts' threads write."""

    def __init__(self) -> None:
        """Stand around the commit of every partition."""
        self.made: list[Commit] = []
        committing, put_features = PartitionHost.committing, PartitionRows.put_features
        pending: dict[int, list[bytes]] = {}  # by the object that the partition writes to
        known: dict[int, int] = {}

        def watched_put(rows: PartitionRows, records: Sequence[Any]) -> None:
            pending[id(rows)] = [record.feature for record in records]
            put_features(rows, records)

        def watched_committing(host: PartitionHost) -> Calling[None]:
            yield from committing(host)
            # behind the write batch, and before anything waits for the tunnel
            number, events = host.number, host.status().run_events
            if events != known.get(number, 0):
                known[number] = events
                features = pending.pop(id(host._opened().rows), [])  # noqa: SLF001 - as its rows are known
                now_ms, now_cpu_ms = monotonic_ms(), process_cpu_s() * 1e3
                self.made.append(Commit(number, now_ms, now_cpu_ms, events, features))

        PartitionRows.put_features = watched_put  # type: ignore[method-assign]
        PartitionHost.committing = watched_committing  # type: ignore[method-assign]
