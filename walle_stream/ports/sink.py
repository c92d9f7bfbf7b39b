"""Where dead letters go besides the data directory, and how their records come back."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from walle_stream.ports.letters import KeptLetter


class DeadLetterSink(Protocol):
    """Where dead letters go besides the data directory. Thread-safe."""

    def send(self, kept: KeptLetter) -> None:
        """Hand a letter over; it is durable only when ``acks`` names it.

        Never blocks: who sends bounds what is on its way. A letter that was not
        acknowledged is sent again by the next run, with the same idempotency key.
        """

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers acknowledged since the last call; never blocks.

        In any order: a letter needs no other one before it.

        Raises:
            WalleError: The sink takes nothing any more.
        """

    def close(self) -> None:
        """Send what can be sent within the adapter's bound, then close; may be called twice."""


class DeadLetterArchive(Protocol):
    """What a sink has taken, for giving records to their source again. One thread; blocks."""

    def replayed(self) -> set[str]:
        """Return the idempotency keys of letters that were marked."""

    def letters(self) -> Iterator[KeptLetter]:
        """Iterate over what is there when it is called; a letter may come more than once."""

    def mark(self, idempotency_keys: Sequence[str]) -> None:
        """Note that letters with these keys were replayed; durable when it returns."""

    def close(self) -> None:
        """Release connections; may be called twice."""


class RecordReturn(Protocol):
    """The way of records back into their source. One thread; blocks."""

    def put(self, kept: KeptLetter) -> None:
        """Hand over the record of a letter that holds a whole one of the source."""

    def flush(self) -> None:
        """Wait until everything that was put is durable.

        Raises:
            WalleError: Something of it is not.
        """

    def close(self) -> None:
        """Release connections; may be called twice."""
