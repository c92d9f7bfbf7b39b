"""Dead letters made by the partition host: late events and failed runs."""

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from walle_stream.events import Event
from walle_stream.ports import RECORD_MAX_BYTES, DeadLetter
from walle_stream.stream.machine import RunTask
from walle_stream.vm.pool import RunResult

RAW_MAX_CHARACTERS: Final = 1_024
"""How much of a record a dead letter keeps."""


def event_dead_letter(event: Event) -> DeadLetter:
    """Describe an event that came too late for its device's order.

    Args:
        event: The event.
    """
    return _letter(
        msgspec.json.encode(event),
        route="late",
        reason=f"event time {event.event_time_ms} lies below an event already released",
        origin=f"{event.device_id}@{event.ingest_time_ms}",
        device_id=event.device_id,
    )


def without_large_numbers(events: Iterable[Event]) -> tuple[list[Event], list[DeadLetter]]:
    """Set those events aside whose contents have integers beyond 64 bits.

    Args:
        events: Of a batch.

    Returns:
        The others, and a letter for each that was set aside.
    """
    good, letters = [], []
    for event in events:
        try:
            msgspec.msgpack.encode(event.contents)
        except OverflowError:
            raw = json.dumps(msgspec.structs.asdict(event), ensure_ascii=False).encode()
            letters.append(
                _letter(
                    raw,
                    route="invalid",
                    reason="a number in its contents is beyond 64 bits",
                    origin=f"{event.device_id}@{event.ingest_time_ms}",
                    device_id=event.device_id,
                )
            )
        else:
            good.append(event)
    return good, letters


def run_dead_letter(run: RunTask, result: RunResult, attempts: int) -> DeadLetter:
    """Describe a page over which a task's script failed.

    Args:
        run: The command.
        result: Its last result, not ok.
        attempts: How often it ran.
    """
    return _letter(
        msgspec.json.encode(run.page),
        route="task",
        reason=result.message,
        origin=f"{run.device_id}@{run.position}",
        device_id=run.device_id,
        task=run.task,
        error=result.error,
        attempts=attempts,
        holds="page",
    )


def _letter(record: bytes, **fields: Any) -> DeadLetter:
    return DeadLetter(
        raw=record.decode()[:RAW_MAX_CHARACTERS],
        digest=blake2b(record, digest_size=16).hexdigest(),
        size_bytes=len(record),
        record=record[:RECORD_MAX_BYTES],
        **fields,
    )
