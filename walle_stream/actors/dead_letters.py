"""Dead letters made by the partition host: late events and failed runs."""

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

from walle_stream.events import Event
from walle_stream.ports import DeadLetter
from walle_stream.stream.machine import RunTask
from walle_stream.vm.pool import RunResult

RAW_MAX_CHARACTERS: Final = 1_024
"""How much of a record a dead letter keeps."""


def event_dead_letter(event: Event) -> DeadLetter:
    """Describe an event that came too late for its device's order.

    Args:
        event: The event.
    """
    raw = msgspec.json.encode(event)
    return DeadLetter(
        route="late",
        reason=f"event time {event.event_time_ms} lies below an event already released",
        origin=f"{event.device_id}@{event.ingest_time_ms}",
        device_id=event.device_id,
        raw=raw.decode()[:RAW_MAX_CHARACTERS],
        digest=blake2b(raw, digest_size=16).hexdigest(),
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
                DeadLetter(
                    route="invalid",
                    reason="a number in its contents is beyond 64 bits",
                    origin=f"{event.device_id}@{event.ingest_time_ms}",
                    device_id=event.device_id,
                    raw=raw.decode()[:RAW_MAX_CHARACTERS],
                    digest=blake2b(raw, digest_size=16).hexdigest(),
                )
            )
        else:
            good.append(event)
    return good, letters


def run_dead_letter(run: RunTask, result: RunResult) -> DeadLetter:
    """Describe a page over which a task's script failed.

    Args:
        run: The command.
        result: Its result, not ok.
    """
    raw = msgspec.json.encode(run.page)
    return DeadLetter(
        route="task",
        reason=result.message,
        origin=f"{run.device_id}@{run.position}",
        device_id=run.device_id,
        task=run.task,
        error=result.error,
        raw=raw.decode()[:RAW_MAX_CHARACTERS],
        digest=blake2b(raw, digest_size=16).hexdigest(),
    )
