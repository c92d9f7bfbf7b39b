"""The guest's side of the buffers that a VM shares with its host.

The host writes an order into the inbox. The guest carries it out, writes the
results behind the header of the outbox and, last of all, the order's number: the
completion mark. Results that do not fit stay here: the header gives their size,
and the host provides a larger outbox. ``layout`` describes the bytes.
"""

from abc import ABC, abstractmethod
from array import array
from os import read, write
from typing import Final

from walle_stream.vm.guest.layout import (
    ANSWER_HEAD,
    CALL,
    FEW_WORDS,
    GATHERED_MAX_BYTES,
    HEADER,
    INBOX,
    LONGEST_PAUSE,
    MAGIC,
    NUMBER,
    PENDING,
    RING,
    STATUS_ASKS,
    STATUS_COMPLETE,
    STATUS_NEXT,
    STATUS_TOO_SMALL,
    WORD_BYTES,
)

_MARKS: Final = {
    status: int.from_bytes(MAGIC, "little") | status << 32
    for status in (STATUS_COMPLETE, STATUS_TOO_SMALL, STATUS_ASKS, STATUS_NEXT)
}
_NO_RESULT: Final[tuple[int, list[int], list[bytes], int]] = (0, [], [], 0)


class Exchange(ABC):
    """The buffers of one VM, for the thread that entered the interpreter."""

    def __init__(self, inbox: memoryview, outbox: memoryview) -> None:
        """Take the buffers; see ``share``."""
        self._order_number = 0
        self._result = _NO_RESULT
        self._wake = self._done = -1
        self.share(inbox, outbox)

    @abstractmethod
    def call(self, packed: memoryview) -> None:
        """Run a batch of marshalled groups; the buffer may be longer."""

    def share(self, inbox: memoryview, outbox: memoryview) -> None:
        """Use other buffers from now on, for the host's orders and for results."""
        self._inbox = inbox
        self._outbox = outbox
        self._orders = inbox[: INBOX.size].cast("Q")
        self._packed = inbox[INBOX.size :]
        self._heads = outbox[: HEADER.size].cast("Q")

    def serve(self, wake: int, done: int, spins: int) -> None:
        """Carry out the host's orders until the order to leave; the VM's thread stays here.

        For a host that calls often the guest spins, because waking a sleeping thread costs more
        than a whole short call. It spins less and less often if that is in vain. The host rings the
        descriptor ``wake``; the guest rings ``done`` after each order.
        """
        packed, orders, last = self._packed, self._orders, self._order_number
        self._wake, self._done = wake, done
        tries = range(spins)
        pause = paused = 0
        while True:
            if paused:
                paused -= 1
            else:
                for _ in tries:
                    if orders[NUMBER] != last:
                        pause = 0
                        break
                else:
                    pause = paused = min(2 * pause + 1, LONGEST_PAUSE)
            while orders[NUMBER] == last:
                read(wake, 8)
            self._order_number = orders[NUMBER]
            order = orders[0]
            if order == CALL:
                self.call(packed)
            elif order == PENDING:
                self.write_pending()
            else:
                return
            last = self._order_number  # answers to requests of runs were further orders
            write(done, RING)

    def exchange(self, request: bytes) -> tuple[bool, bytes]:
        """Send the host a request during a call; blocks until the answer.

        The answer overwrites the call's input in the inbox.

        Returns:
            Whether the host refused, and the answer or the reason.
        """
        outbox, heads = self._outbox, self._heads
        room = len(outbox) - HEADER.size
        for at in range(0, len(request), room):
            part = request[at : at + room]
            outbox[HEADER.size : HEADER.size + len(part)] = part
            heads[2], heads[3] = len(request) - at, len(part)
            self._turn(STATUS_ASKS)
        parts: list[bytes] = []
        while True:
            left, size, has_failed = ANSWER_HEAD.unpack_from(self._packed)
            parts.append(bytes(self._packed[ANSWER_HEAD.size : ANSWER_HEAD.size + size]))
            if left <= size:
                return bool(has_failed), b"".join(parts)
            heads[2] = heads[3] = 0
            self._turn(STATUS_NEXT)

    def write_pending(self) -> None:
        """Write the last result, or its size if it does not fit."""
        self._result = (self._order_number, *self._result[1:])
        self._write()

    def _write(self) -> None:
        number, words, parts, body_bytes = self._result
        count = len(words)
        at = HEADER.size + WORD_BYTES * count
        end = at + body_bytes
        outbox, heads = self._outbox, self._heads
        status = STATUS_TOO_SMALL
        if end <= len(outbox):
            status = STATUS_COMPLETE
            if count < len(FEW_WORDS):
                FEW_WORDS[count].pack_into(outbox, HEADER.size, *words)
            else:
                outbox[HEADER.size : at] = array("I", words).tobytes()
            if 0 < body_bytes <= GATHERED_MAX_BYTES:
                outbox[at:end] = b"".join(parts)
            elif parts:
                # part by part, to copy large data only once
                for part in parts:
                    begin, at = at, at + len(part)
                    outbox[begin:at] = part
            self._result = _NO_RESULT
        heads[0] = _MARKS[status]
        heads[2] = count
        heads[3] = body_bytes
        heads[NUMBER] = number

    def _finish(self, number: int, words: list[int], parts: list[bytes]) -> None:
        self._result = (number, words, parts, sum(map(len, parts)))
        self._write()

    def _turn(self, status: int) -> None:
        # signals the host and sleeps until its next order
        heads, orders, last = self._heads, self._orders, self._order_number
        heads[0] = _MARKS[status]
        heads[NUMBER] = last
        write(self._done, RING)
        while orders[NUMBER] == last:
            read(self._wake, 8)
        self._order_number = orders[NUMBER]
