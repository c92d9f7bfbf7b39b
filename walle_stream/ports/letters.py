"""Dead letters: records, events and runs that could not be processed, with the reason."""

from hashlib import blake2b
from typing import Final, Literal

import msgspec

type DeadLetterRoute = Literal["decode", "oversized", "invalid", "late", "task", "overflow"]
"""The named routes of dead letters.

``decode``: not CSV or JSON; ``oversized``: over the record limit; ``invalid``:
no device, time or page, or a failed expression; ``late``: earlier than a
released event; ``task``: the script raised; ``overflow``: a page had more
events than allowed."""


type Holds = Literal["record", "page", "message", "feature"]
"""Kind of a letter's record: a record of the source, the page of a task's run, a message that
came down, or a feature that came up. Only the first can be given to the source again."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A record or event that could not be processed, kept with the reason."""

    route: DeadLetterRoute
    reason: str
    """One line for a person."""
    origin: str
    """Its origin: ``file.csv:17``, or ``device@position`` in a stream."""
    place: str = ""
    """Its record of the source, ``topic[partition]@offset``, if ``origin`` is something else: the
    record of the event that woke a failed run."""
    device_id: str = ""
    task: str = ""
    error: str = ""
    """Class of the exception, if there was one."""
    raw: str = ""
    """The beginning of the record (at most 1,024 characters)."""
    digest: str = ""
    """blake2b-128 of the whole record, hexadecimal."""
    attempts: int = 0
    """Number of attempts of a run; 0 if the letter is not of a run."""
    holds: Holds = "record"
    size_bytes: int = 0
    """Size of the whole record; 0 if unknown."""
    record: bytes = b""
    """The record itself, at most ``RECORD_MAX_BYTES`` of it; never in the letter's JSON."""


RECORD_MAX_BYTES: Final = 1024 * 1024
"""Largest part of a record that is kept with its dead letter."""


class KeptLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter in a partition, with its permanent identity."""

    letter: DeadLetter
    pipeline: str
    incarnation: str
    """Incarnation of the data directory in which the partition began."""
    partition: int
    number: int
    """Number of the letter in its partition, from 1."""

    @property
    def idempotency_key(self) -> str:
        """Key that is equal for all deliveries of a letter, and different for other letters.

        It depends on the refused record, not on the number, because a partition that continues
        elsewhere from an older snapshot gives the same letters other numbers.
        """
        letter = self.letter
        what = (letter.route, letter.origin, letter.device_id, letter.task, letter.digest)
        digest = blake2b("\0".join(what).encode(errors="replace"), digest_size=16).hexdigest()
        return f"letter/{self.incarnation}/{self.partition}/{digest}"

    @property
    def is_whole(self) -> bool:
        """Whether ``letter.record`` is the whole record and not empty."""
        letter = self.letter
        if letter.size_bytes and letter.size_bytes != len(letter.record):
            return False
        digest = blake2b(letter.record, digest_size=16).hexdigest()
        return bool(letter.record) and letter.digest == digest
