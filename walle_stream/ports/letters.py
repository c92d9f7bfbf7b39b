"""What left the main path, with the reason."""

from hashlib import blake2b
from typing import Final, Literal

import msgspec

type DeadLetterRoute = Literal["decode", "oversized", "invalid", "late", "task", "overflow"]
"""Why a record or an event left the main path: the named routes.

``decode``: not CSV or JSON; ``oversized``: over the record limit; ``invalid``:
no device, time or page, or a failed expression; ``late``: below what was
already released; ``task``: the script raised; ``overflow``: a page had more
events than allowed."""


type Holds = Literal["record", "page", "message", "feature"]
"""What a letter's record is: the source's, the page that a task was given, a message that
came down, or a feature that came up; only the first can be given to the source again."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A record or event that could not be processed, kept with the reason."""

    route: DeadLetterRoute
    reason: str
    """One line for a person."""
    origin: str
    """Where it came from: ``file.csv:17``, or ``device@position`` in a stream."""
    place: str = ""
    """The record of the source that it is of, ``topic[partition]@offset``, where ``origin`` says
    something else: of the event that woke a failed run."""
    device_id: str = ""
    task: str = ""
    error: str = ""
    """Class of the exception, when there was one."""
    raw: str = ""
    """The beginning of the record (at most 1,024 characters)."""
    digest: str = ""
    """blake2b-128 of the whole record, hexadecimal."""
    attempts: int = 0
    """How often a run was tried; 0 for what is no run."""
    holds: Holds = "record"
    size_bytes: int = 0
    """Of the whole record; 0 where it is not known."""
    record: bytes = b""
    """The record itself, at most ``RECORD_MAX_BYTES`` of it; never in the letter's JSON."""


RECORD_MAX_BYTES: Final = 1024 * 1024
"""How much of a record is kept with its dead letter."""


class KeptLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as a partition keeps it: with what names it for ever."""

    letter: DeadLetter
    pipeline: str
    incarnation: str
    """Of the data directory in which the partition began."""
    partition: int
    number: int
    """Of the partition's dead letters, from 1."""

    @property
    def idempotency_key(self) -> str:
        """The same for every delivery of a letter, another one for every other letter.

        Made of what was refused, not of the number: a partition that begins again elsewhere,
        at an older snapshot, gives the same letters other numbers.
        """
        letter = self.letter
        what = (letter.route, letter.origin, letter.device_id, letter.task, letter.digest)
        digest = blake2b("\0".join(what).encode(errors="replace"), digest_size=16).hexdigest()
        return f"letter/{self.incarnation}/{self.partition}/{digest}"

    @property
    def is_whole(self) -> bool:
        """Whether ``letter.record`` is all of the record, which is not empty."""
        letter = self.letter
        if letter.size_bytes and letter.size_bytes != len(letter.record):
            return False
        digest = blake2b(letter.record, digest_size=16).hexdigest()
        return bool(letter.record) and letter.digest == digest
