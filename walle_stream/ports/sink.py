"""Sinks of dead letters besides the data directory, and the way of records back to a source."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from walle_stream.ports.letters import KeptLetter


class DeadLetterSink(Protocol):
    """A sink of dead letters besides the data directory; thread-safe."""

    def send(self, kept: KeptLetter) -> None:
        """Send a letter, which is durable only after ``acks`` returns its number.

        Never blocks, because the sender bounds the letters in flight. The next run sends
        an unacknowledged letter again, with the same idempotency key.
        """

    def acks(self, partition: int) -> Iterable[int]:
        """Return the numbers acknowledged since the last call; never blocks.

        The numbers may have any order, because letters do not depend on each other.

        Raises:
            WalleError: The sink takes no further letters.
        """

    def close(self) -> None:
        """Send remaining letters within the adapter's bound, then close; may be called twice."""


class DeadLetterArchive(Protocol):
    """The letters of a sink, for replaying their records; for one thread, and blocks."""

    def replayed(self) -> set[str]:
        """Return the idempotency keys of marked letters."""

    def letters(self) -> Iterator[KeptLetter]:
        """Yield the letters that exist at the call; a letter may come more than once."""

    def mark(self, idempotency_keys: Sequence[str]) -> None:
        """Mark letters with these keys as replayed; durable at the return."""

    def close(self) -> None:
        """Release connections; may be called twice."""


class RecordReturn(Protocol):
    """The way of records back into their source; for one thread, and blocks."""

    def put(self, kept: KeptLetter) -> None:
        """Put the record of a letter, which must hold a whole record of the source."""

    def flush(self) -> None:
        """Wait until all records are durable.

        Raises:
            WalleError: A record is not durable.
        """

    def close(self) -> None:
        """Release connections; may be called twice."""
