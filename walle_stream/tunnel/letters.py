"""Dead letters on their way to a sink: which are, and which have arrived.

A letter and its mark are in the partition's database before it is sent, and the mark goes in
a later commit, after the acknowledgement. So a death at any moment loses none; what is sent
twice has the same idempotency key. Nothing here waits for the sink: what it does not take
yet stays in the database, and a bounded number of bytes is in memory.
"""

from collections.abc import Callable, Iterator
from threading import Event as Flag
from typing import Final

from walle_stream.clock import monotonic_ms
from walle_stream.faults import crash_point
from walle_stream.ports import DeadLetterSink, KeptLetter

IN_FLIGHT_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a partition's letters without acknowledgement beyond which no other is sent."""

_LETTER_BYTES: Final = 1_000  # beside the record, about
_POLL_S: Final = 0.005


class LetterSession:
    """Bookkeeping of one partition's letters. One thread, the device host's."""

    def __init__(
        self,
        sink: DeadLetterSink,
        partition: int,
        read_unsent: Callable[[int], Iterator[KeptLetter]],
    ) -> None:
        """Begin with nothing sent; ``pump`` sends.

        ``read_unsent`` iterates over the committed letters without acknowledgement that have
        numbers above the one given, ascending.
        """
        self._sink = sink
        self._partition = partition
        self._read_unsent = read_unsent
        self._in_flight: dict[int, int] = {}
        self._in_flight_bytes = 0
        self._acknowledged: list[int] = []
        self._sent = 0  # up to this number

    def pump(self, last: int) -> None:
        """Take acknowledgements, then send what there is room for; never waits for the sink.

        ``last`` is the number of the partition's last letter that may leave.

        Raises:
            WalleError: The sink takes nothing any more.
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
        """Return whether the sink has everything, waiting for it until the monotonic deadline."""
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
