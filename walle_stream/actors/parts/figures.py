"""Counters of a partition, and the latencies of its run."""

from walle_stream.actors.parts.part import Opening, Part
from walle_stream.actors.plan.latency import Latencies
from walle_stream.actors.plan.partition_plan import PartitionStatus
from walle_stream.actors.rows.partition_rows import PartitionRows
from walle_stream.actors.turns.turn import Turn
from walle_stream.clock import monotonic_ms
from walle_stream.wire.rows import PartitionHead, add_tasks


class Figures(Part):
    """Values for status and metrics; after all parts that count by themselves."""

    _opening: Opening
    _head: PartitionHead  # of the last commit

    def __init__(self) -> None:
        """Begin; figures of the run outlive restarts."""
        self.latencies = Latencies()
        self.run_events = 0

    def restart(self, opening: Opening) -> None:
        """Continue the counters from the last commit."""
        self._opening, self._head = opening, opening.head

    def contribute(self, turn: Turn, rows: PartitionRows) -> None:  # noqa: ARG002 - part signature
        """Count the contents of the commit."""
        head, machine, done = turn.head, self._opening.machine, turn.done
        head.watermark_ms = machine.watermark_ms
        if turn.deadline_ms is not None:
            return  # a final commit without a turn
        counters = head.counters
        counters.add(machine.counts)
        counters.task_runs += sum(counts.runs for counts in done.tasks.values())
        counters.task_failures += done.failures
        head.tasks = add_tasks(head.tasks, done.tasks)
        counters.features += len(turn.records)
        counters.feature_bytes += sum(len(record.feature) for record in turn.records)
        counters.encoded_bytes += sum(len(record.encoding) for record in turn.records)
        counters.commits += 1

    def committed(self, turn: Turn) -> None:
        """Count the committed events of this run."""
        self._head = turn.head
        self.run_events += turn.events
        now_ms = monotonic_ms()
        for delivered_ms, exits in turn.exits:
            self.latencies.add(now_ms - delivered_ms, exits)

    @property
    def open_calls(self) -> int:
        """Number of calls to the cloud without a reply so far."""
        return self._head.counters.calls - self._head.counters.replies

    def status(self, outbox_bytes: int) -> PartitionStatus:
        """Return the partition's figures."""
        head = self._head
        return PartitionStatus(
            self._opening.number,
            head.counters,
            self.latencies,
            self._opening.machine.active_count,
            outbox_bytes,
            head.watermark_ms,
            self.run_events,
            head.ledger,
            head.tasks,
            head.waiting_messages,
        )
