"""Report of the ledger of bytes: sent bytes by task, compared with the raw rows.

All values are cumulative for the data directory, as the counters are. The field names are stable
for other programs. A saving is a share of the raw bytes, 0-1; it is below 0 if a task sends more
bytes than the raw rows have.
"""

from pathlib import Path
from typing import Any

import msgspec

from walle_stream.app.queries.query import run_state
from walle_stream.wire.ledger import Ledger, TaskBytes
from walle_stream.wire.rows import Counters


class Saving(msgspec.Struct, frozen=True):
    """Savings against the raw rows; None where they were not measured."""

    raw: float | None
    """Saving against the rows as the source had them."""
    packed_raw: float | None
    """Saving against the same rows as one zstd frame per batch."""


class TaskReport(msgspec.Struct, frozen=True):
    """Bytes that one task sent."""

    task: str
    bytes: TaskBytes
    sent: Saving
    """Saving with all that the task sent."""
    feature_alone: Saving
    """Saving if the task sent its features alone."""
    encoding_alone: Saving
    """Saving if the task sent its encodings alone."""


class LedgerReport(msgspec.Struct, frozen=True):
    """Bytes sent by each task, compared with the raw bytes."""

    source_rows: int
    raw_bytes: int
    uplink_bytes: int
    """All bytes sent, with envelopes and framing: the tasks' sum and the unassigned bytes.

    A frame that is sent again after a kill counts once.
    """
    unassigned_bytes: int
    """Bytes sent before the data directory had a ledger."""
    measured_rows: int
    """Rows of batches that ``walle run --ledger`` measured."""
    measured_raw_bytes: int
    packed_raw_bytes: int
    tasks: list[TaskReport]

    @classmethod
    def of(cls, counters: Counters, ledger: Ledger) -> "LedgerReport":
        """Make the report from the sums of all partitions."""
        sent_bytes = sum(sums.sent_bytes for sums in ledger.tasks.values())
        return cls(
            source_rows=counters.source_rows,
            raw_bytes=counters.raw_bytes,
            uplink_bytes=counters.uplink_bytes,
            unassigned_bytes=counters.uplink_bytes - sent_bytes,
            measured_rows=ledger.measured_rows,
            measured_raw_bytes=ledger.measured_raw_bytes,
            packed_raw_bytes=ledger.packed_raw_bytes,
            tasks=[
                _task_report(task, sums, counters.raw_bytes, ledger)
                for task, sums in sorted(ledger.tasks.items())
            ],
        )

    def to_builtins(self) -> dict[str, Any]:
        """Return the stable JSON object, with a task's bytes beside its name."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        fields["tasks"] = [
            {
                "task": row["task"],
                **row["bytes"],
                "sent_bytes": task.bytes.sent_bytes,
                "saving": {name: row[name] for name in ("sent", "feature_alone", "encoding_alone")},
            }
            for row, task in zip(fields["tasks"], self.tasks, strict=True)
        ]
        return fields


def read_ledger(data_dir: Path) -> LedgerReport:
    """Read the ledger of a data directory, even while a run writes it.

    Raises:
        StoreMissingError: There is no data directory.
    """
    state = run_state(data_dir)
    return LedgerReport.of(state.counters, state.ledger)


def _task_report(task: str, size: TaskBytes, raw_bytes: int, ledger: Ledger) -> TaskReport:
    plain, packed = ledger.measured_raw_bytes, ledger.packed_raw_bytes
    feature, encoding = size.feature_alone_bytes, size.encoding_alone_bytes
    return TaskReport(
        task,
        size,
        Saving(_below(size.sent_bytes, raw_bytes), _below(size.measured_sent_bytes, packed)),
        Saving(_below(feature, plain), _below(feature, packed)),
        Saving(_below(encoding, plain), _below(encoding, packed)),
    )


def _below(size_bytes: int, raw_bytes: int) -> float | None:
    return round(1.0 - size_bytes / raw_bytes, 6) if raw_bytes else None
