"""A mailbox: messages of one actor in order, bounded in bytes.

Back-pressure starts here: a sender waits while the receiver is behind. An empty mailbox accepts a
message of any size, so that a message larger than the limit cannot block for ever.
"""

from collections import deque
from threading import Condition
from typing import Any, Final

import msgspec

from walle_stream.errors import ActorDeadError, MailboxFullError

MAILBOX_MAX_BYTES: Final = 4 * 1024 * 1024


class Envelope(msgspec.Struct, gc=False):
    """A message with its size and the place of its reply."""

    message: Any
    size_bytes: int = 0
    reply: "Reply | None" = None


class Reply:
    """Receiver of the answer to an ``ask``. Used once."""

    __slots__ = ("_condition", "_is_set", "_value", "error")

    def __init__(self) -> None:
        """Make an empty reply."""
        self._condition = Condition()
        self._is_set = False
        self._value: Any = None
        self.error: BaseException | None = None

    def set(self, value: Any, error: BaseException | None = None) -> None:
        """Set the answer, or the error for ``wait`` to raise; a second call is ignored."""
        with self._condition:
            if not self._is_set:
                self._value, self.error, self._is_set = value, error, True
                self._condition.notify_all()

    def wait(self, timeout_s: float | None) -> tuple[bool, Any]:
        """Wait for the answer (None: for ever); return whether it came, and the answer."""
        with self._condition:
            is_set = self._condition.wait_for(lambda: self._is_set, timeout_s)
            return is_set, self._value


class Mailbox:
    """Messages in order of arrival. Any thread puts, one thread takes."""

    def __init__(self, max_bytes: int = MAILBOX_MAX_BYTES) -> None:
        """Make an empty, open mailbox; ``max_bytes`` limits the waiting messages."""
        self._envelopes: deque[Envelope] = deque()
        self._condition = Condition()
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._is_closed = False

    def put(self, envelope: Envelope, timeout_s: float | None = None) -> None:
        """Append a message; blocks while the mailbox is full, for ever without a timeout.

        Raises:
            ActorDeadError: The mailbox is closed.
            MailboxFullError: The mailbox was full until the timeout.
        """
        size_bytes = envelope.size_bytes
        with self._condition:
            has_room = self._condition.wait_for(
                lambda: (
                    self._is_closed
                    or not self._envelopes
                    or self._size_bytes + size_bytes <= self._max_bytes
                ),
                timeout_s,
            )
            if self._is_closed:
                raise ActorDeadError("the actor has stopped and takes no more messages")
            if not has_room:
                raise MailboxFullError(
                    f"the mailbox holds {self._size_bytes} of {self._max_bytes} bytes "
                    f"after {timeout_s} s: send less or raise the limit"
                )
            self._envelopes.append(envelope)
            self._size_bytes += size_bytes
            self._condition.notify_all()

    def receive(self, timeout_s: float | None = None) -> Envelope | None:
        """Take the oldest message; blocks, for ever without a timeout.

        Returns None after the timeout, or if the mailbox is closed and empty.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._envelopes or self._is_closed, timeout_s)
            if not self._envelopes:
                return None
            envelope = self._envelopes.popleft()
            self._size_bytes -= envelope.size_bytes
            self._condition.notify_all()
            return envelope

    def close(self) -> None:
        """Refuse further messages; waiting messages can still be taken."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._is_closed

    @property
    def messages(self) -> list[Any]:
        """The waiting messages."""
        with self._condition:
            return [envelope.message for envelope in self._envelopes]

    @property
    def size_bytes(self) -> int:
        """Bytes of the waiting messages."""
        return self._size_bytes
