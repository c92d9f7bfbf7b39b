"""Dead letters made by the partition host: refused events and failed runs."""

from hashlib import blake2b
from typing import Any, Final

import msgspec

from walle_stream.ports import RECORD_MAX_BYTES, DeadLetter, Origins
from walle_stream.stream.commands import RunTask
from walle_stream.stream.pages import plain_page
from walle_stream.vm.results import RunResult
from walle_stream.wire.event_batch import RefusedRow

RAW_MAX_CHARACTERS: Final = 1_024


def refused_dead_letter(row: RefusedRow, origins: Origins | None) -> DeadLetter:
    """Make the letter of an event that the core refused; ``origins`` may have no records."""
    place = (
        f"{row.device_id}@{row.ingest_time_ms}" if origins is None else origins.of(row.event_index)
    )
    return _letter(
        row.record, route=row.route, reason=row.reason, origin=place, device_id=row.device_id
    )


def run_dead_letter(run: RunTask, result: RunResult, attempts: int, place: str = "") -> DeadLetter:
    """Make the letter of a failed run, with the record that woke it if known."""
    return _letter(
        msgspec.json.encode(plain_page(run.page)),
        route="task",
        reason=result.message,
        origin=f"{run.device_id}@{run.position}",
        place=place,
        device_id=run.device_id,
        task=run.task,
        error=result.error,
        attempts=attempts,
        holds="message" if isinstance(run.page, list) else "page",
    )


def _letter(record: bytes, **fields: Any) -> DeadLetter:
    return DeadLetter(
        raw=record.decode()[:RAW_MAX_CHARACTERS],
        digest=blake2b(record, digest_size=16).hexdigest(),
        size_bytes=len(record),
        record=record[:RECORD_MAX_BYTES],
        **fields,
    )
