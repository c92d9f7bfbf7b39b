"""Records that the cloud side refused, into the pipeline's topic of dead letters.

A letter is in its topic before the refused record's offset may be committed, so a death in
between sends it again, with the same idempotency key. While the topic's brokers are away the
stream waits, as it would for its own: nothing piles up, and the watchdog sees it.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, cast

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from msgspec import structs

from walle_connectors.faust.preflight import addressed
from walle_connectors.faust.settings import LetterPart
from walle_connectors.letter_records import encode_letter
from walle_stream.errors import EnvelopeError
from walle_stream.ports import DeadLetter, DeadLetterRoute, KeptLetter
from walle_stream.reading.dead_letters import record_dead_letter
from walle_stream.wire.record import decode_record

_log = logging.getLogger(__name__)

_ROOM_BYTES: Final = 16 * 1024  # for key and headers
_AGAIN_S: Final = 1.0


class RefusedRecords:
    """Sends letters of refused records. One event loop."""

    def __init__(self, part: LetterPart, pipeline: str, group: str) -> None:
        """Connect with the first letter.

        Args:
            part: Topic and brokers.
            pipeline: Whose records they were to be.
            group: Who refuses them: it is what a data directory's incarnation is elsewhere.
        """
        self._part = part
        self._pipeline = pipeline
        self._group = group
        self._producer: AIOKafkaProducer | None = None

    async def put(self, message: Any, error: EnvelopeError) -> None:
        """Send a letter, and wait until the topic has it, however long that takes."""
        kept = KeptLetter(
            letter=letter_of(message, error),
            pipeline=self._pipeline,
            incarnation=self._group,
            partition=message.partition,
            number=message.offset,
        )
        most = self._part.max_bytes - _ROOM_BYTES
        while not await self._is_sent(kept, most, message.headers or ()):
            most //= 2  # the topic takes less than its model says

    async def close(self) -> None:
        """Disconnect; may be called twice."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _is_sent(self, kept: KeptLetter, most: int, headers: Iterable[Any]) -> bool:
        record = encode_letter(kept, most)
        said = ""
        while True:
            try:
                producer = await self._connected()
                await producer.send_and_wait(
                    self._part.topic,
                    record.value,
                    record.key,
                    headers=[*record.headers, *((name, text or b"") for name, text in headers)],
                )
            except MessageSizeTooLargeError:
                if record.value:
                    return False
                _log.error("a dead letter of %s fits into no record", kept.letter.origin)
            except (KafkaError, OSError) as error:
                if str(error) != said:
                    said = str(error)
                    text = "dead letters wait for topic %r: %s"
                    _log.warning(text, self._part.topic, said or type(error).__name__)
                await asyncio.sleep(_AGAIN_S)
                continue
            return True

    async def _connected(self) -> AIOKafkaProducer:
        if self._producer is None:
            made = AIOKafkaProducer(
                **addressed(self._part),
                acks="all",
                enable_idempotence=True,
                max_request_size=self._part.max_bytes,
            )
            try:
                await made.start()
            except BaseException:
                await made.stop()
                raise
            self._producer = made
        return self._producer


def letter_of(message: Any, error: EnvelopeError) -> DeadLetter:
    """Make the letter of a refused record.

    Args:
        message: Faust's; key, value and headers as they came.
        error: Why.

    Returns:
        Its device and task are what the record says of itself, where it can be read.
    """
    device_id, task, route = (message.key or b"").decode(errors="replace"), "", "decode"
    with suppress(EnvelopeError):
        envelope, _ = decode_record(message.key, message.value, message.headers or ())
        device_id, task, route = envelope.device_id, envelope.task, "invalid"
    made = record_dead_letter(
        message.value or b"",
        route=cast("DeadLetterRoute", route),
        reason=str(error),
        origin=f"{message.topic}[{message.partition}]@{message.offset}",
        device_id=device_id,
        error=type(error).__name__,
    )
    return structs.replace(made, task=task, holds="feature")
