"""The thread behind what sends records: it makes a producer, feeds it, makes another when it fails.

What a failure means for the records in hand is another thing for features, whose order
counts, and for dead letters. Alike is what stands here: a broker that is down is waited for,
closing waits a little for what is on its way, an error that nobody thought of is told
to senders, and a producer that does nothing although a broker answers is replaced: a client
library that lost its way would keep records without an end, as no delivery expires here.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Final

from walle_connectors.brokers import Connection
from walle_connectors.kafka.connecting import connect
from walle_connectors.probe import probe_brokers
from walle_stream.errors import BrokerUnreachableError, TunnelError, WalleError

_log = logging.getLogger(__name__)

CLOSE_S: Final = 2.0
"""How long closing waits for what is on its way."""

STALL_S: Final = 60.0
"""Between two looks whether a producer with records in hand still moves."""

REMIND_EVERY: Final = 30
"""Failures in a row between two lines of the log, some minutes."""

_AGAIN_S: Final = 0.5  # before another producer, when one failed; doubled by each failure
_AGAIN_MAX_S: Final = 10.0
_DOUBLINGS_MAX: Final = 10


class SendingThread[P](ABC):
    """Base of what has senders on one side and producers on the other, one after the other.

    ``_condition`` guards everything; senders, callbacks and the thread meet at it.
    """

    def __init__(self, connection: Connection, purpose: str, name: str) -> None:
        """Begin with no producer; who inherits starts ``_thread`` when it is ready."""
        self._connection = connection
        self._purpose = purpose
        self._condition = Condition()
        self._stopped = Event()
        self._session = 0  # counts producers
        self._failure: WalleError | None = None  # for good: whoever sends is told
        self._answers = 0  # counts acknowledgements
        self._failures = 0  # of producers in a row, until something is acknowledged
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def close(self) -> None:
        """Wait a little for what is on its way, then close."""
        with self._condition:
            self._stopped.set()
            self._condition.notify_all()
        self._thread.join()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: WalleError) -> None:
        with self._condition:
            self._failure = error
            self._condition.notify_all()

    # What is another thing for each; all of it runs in the thread

    def _is_needed(self) -> bool:
        """Return whether there is a reason to connect; under the condition, never blocks."""
        return True

    @abstractmethod
    def _make_producer(self) -> P:
        """Make one, having looked whether a broker answers; blocks, and may raise."""

    @abstractmethod
    def _take_over(self, producer: P) -> None:
        """Have a new one begin with what has no acknowledgement; under the condition."""

    @abstractmethod
    def _feed(self, producer: P) -> None:
        """Hand records over until it fails or the end, and close it; blocks."""

    @abstractmethod
    def _has_in_hand(self) -> bool:
        """Return whether the producer has records without an answer; under the condition."""

    def _wait_until(self, is_there: Callable[[], object]) -> bool:
        """Wait for something, or the end of it all; under the condition, which is let go meanwhile.

        False where the producer does nothing with what it has, and a broker answered twice.
        """
        seen, has_answered = self._answers, False
        while not self._condition.wait_for(is_there, STALL_S):
            if self._answers != seen or not self._has_in_hand():
                seen, has_answered = self._answers, False
                continue
            # the answer may take seconds: senders and callbacks must not wait for it
            self._condition.release()
            try:
                is_answered = self._is_answered()
            finally:
                self._condition.acquire()
            if has_answered and is_answered and self._answers == seen:
                text = "%s: nothing was acknowledged for %d s, although a broker answers: anew"
                _log.warning(text, self._purpose, 2 * STALL_S)
                return bool(is_there())
            has_answered = is_answered
        return True

    def _is_answered(self) -> bool:
        try:
            probe_brokers(self._connection)
        except BrokerUnreachableError:
            return False
        return True

    def _tell_failure(self, what: str, error: Exception) -> None:
        """Count a failure, and tell it now and then: what refuses us may do so for days."""
        with self._condition:
            count, self._failures = self._failures, self._failures + 1
        if count % REMIND_EVERY:
            return
        text = said(error)
        is_forbidden = "AUTHORIZATION" in text.upper()
        advice = (
            ": grant this client WRITE and DESCRIBE on the topic (before Kafka 2.8 also "
            "IDEMPOTENT_WRITE on the cluster)"
            if is_forbidden
            else ""
        )
        _log.warning("%s: %s; sent again%s", what, text, advice)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - senders must learn of it, whatever it is
            _log.exception("%s failed", self._purpose)
            self._fail(TunnelError(f"{self._purpose} failed: {said(error)}: see the log"))

    def _work(self) -> None:
        while not self._stopped.is_set():
            with self._condition:
                self._condition.wait_for(lambda: self._is_needed() or self._stopped.is_set())
            producer = connect(
                self._connection,
                self._make_producer,
                self._stopped,
                self._purpose,
                makes_probe=True,
            )
            if producer is None:
                return
            with self._condition:
                self._session += 1
                self._take_over(producer)
            self._feed(producer)
            pause_s = _AGAIN_S * 2 ** min(max(self._failures - 1, 0), _DOUBLINGS_MAX)
            self._stopped.wait(min(pause_s, _AGAIN_MAX_S))


def said(error: Exception) -> str:
    """Return an error's text with its name, which libraries' own texts often lack."""
    text = str(error)
    name = type(error).__name__
    return text if name in text else f"{name}: {text}"
