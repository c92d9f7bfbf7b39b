"""Dead letters on their way to a sink, with their acknowledgements.

A letter and its mark are in the partition's database before the letter is sent. A later commit
deletes the mark, after the acknowledgement. So a crash at any moment loses no letter, and a letter
that is sent twice has the same idempotency key. This module never waits for the sink: letters that
the sink does not take yet stay in the database, and the bytes in memory are bounded.
"""

from collections.abc import Callable, Iterator
from threading import Event as Flag
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.faults import crash_point
from walle_stream.ports import DeadLetterSink, KeptLetter

IN_FLIGHT_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a partition's unacknowledged letters above which no further letter is sent."""

_LETTER_BYTES: Final = 1_000  # approximate size of a letter without its record
_POLL_S: Final = 0.005


class LetterSession:
    """Bookkeeping of one partition's letters, for the device host's thread."""

    def __init__(
        self,
        sink: DeadLetterSink,
        partition: int,
        read_unsent: Callable[[int], Iterator[KeptLetter]],
    ) -> None:
        """Begin without sending; ``pump`` sends.

        ``read_unsent`` yields the committed, unacknowledged letters with numbers above the given
        one, ascending.
        """
        self._sink = sink
        self._partition = partition
        self._read_unsent = read_unsent
        self._in_flight: dict[int, int] = {}
        self._in_flight_bytes = 0
        self._acknowledged: list[int] = []
        self._sent = 0  # up to this number

    def pump(self, last: int) -> None:
        """Take acknowledgements, then send letters up to the bound; never waits for the sink.

        ``last`` is the number of the partition's last letter that may be sent.

        Raises:
            WalleError: The sink takes no further letters.
        """
        for number in self._sink.acks(self._partition):
            size_bytes = self._in_flight.pop(number, None)
            if size_bytes is not None:
                self._in_flight_bytes -= size_bytes
                self._acknowledged.append(number)
        if self._sent >= last or self._in_flight_bytes >= IN_FLIGHT_MAX_BYTES:
            return
        for kept in self._read_unsent(self._sent):
            if self._in_flight_bytes >= IN_FLIGHT_MAX_BYTES:
                return
            if kept.number > last:
                break
            self._send(kept)
        self._sent = last

    def collect(self) -> list[int]:
        """Return the letters whose marks the next commit deletes, each once."""
        acknowledged, self._acknowledged = self._acknowledged, []
        return acknowledged

    def flush(self, last: int, deadline_ms: float) -> bool:
        """Wait until the monotonic deadline; return whether the sink has all letters."""
        tick = Flag()
        self.pump(last)
        while (self._in_flight or self._sent < last) and monotonic_ms() < deadline_ms:
            tick.wait(_POLL_S)
            self.pump(last)
        return not self._in_flight and self._sent >= last

    def _send(self, kept: KeptLetter) -> None:
        size_bytes = len(kept.letter.record) + _LETTER_BYTES
        self._in_flight[kept.number] = size_bytes
        self._in_flight_bytes += size_bytes
        self._sent = kept.number
        crash_point("letter.before")
        self._sink.send(kept)
        crash_point("letter.after")
