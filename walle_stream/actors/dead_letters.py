"""Dead letters made by the partition host: late events and failed runs."""

import json
from hashlib import blake2b
from typing import Any, Final

import msgspec

from walle_stream.actors.places import origin_of
from walle_stream.events import Event
from walle_stream.ports import RECORD_MAX_BYTES, DeadLetter, Origins, SourceBatch
from walle_stream.stream.commands import RunTask
from walle_stream.stream.pages import plain_page
from walle_stream.vm.pool import RunResult

RAW_MAX_CHARACTERS: Final = 1_024
"""How much of a record a dead letter keeps."""


def event_dead_letter(event: Event, origin: str) -> DeadLetter:
    """Describe an event that came too late for its device's order."""
    return _letter(
        msgspec.json.encode(event),
        route="late",
        reason=f"event time {event.event_time_ms} lies below an event already released",
        origin=origin,
        device_id=event.device_id,
    )


def set_large_numbers_aside(batch: SourceBatch) -> list[Event]:
    """Set those events aside whose contents have integers beyond 64 bits: a letter for each.

    Args:
        batch: Lets its events go; gets the letters.

    Returns:
        The other events.
    """
    events, batch.events = batch.events, []
    good, letters, kept = list[Event](), list[DeadLetter](), list[int]()
    for index, event in enumerate(events):
        try:
            msgspec.msgpack.encode(event.contents)
        except OverflowError:
            raw = json.dumps(msgspec.structs.asdict(event), ensure_ascii=False).encode()
            letters.append(
                _letter(
                    raw,
                    route="invalid",
                    reason="a number in its contents is beyond 64 bits",
                    origin=origin_of(event, events, batch.origins),
                    device_id=event.device_id,
                )
            )
        else:
            good.append(event)
            kept.append(index)
    batch.dead_letters += letters
    batch.counts.accepted_rows -= len(letters)
    batch.counts.dead_letter_rows += len(letters)
    if batch.origins is not None:
        source, numbers = batch.origins
        batch.origins = Origins(source, [numbers[index] for index in kept])
    return good


def run_dead_letter(run: RunTask, result: RunResult, attempts: int, place: str = "") -> DeadLetter:
    """Describe a page over which a task's script failed.

    Args:
        run: The command.
        result: Its last result, not ok.
        attempts: How often it ran.
        place: The record of the event that woke it, where that is known.
    """
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
