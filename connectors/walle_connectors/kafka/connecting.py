"""Making and ending clients of kafka-python so that a broker may be down meanwhile."""

import logging
from collections.abc import Callable
from threading import Event
from typing import Final, override

from kafka.errors import KafkaError, KafkaTimeoutError

from kafka import KafkaProducer
from walle_connectors.brokers import Connection
from walle_connectors.probe import probe_brokers
from walle_stream.errors import BrokerUnreachableError, SourceError, TopicError

_log = logging.getLogger(__name__)

BOOTSTRAP_MS: Final = 5_000
"""Longest time that a client has for its first answer."""

_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 2.0
_REMIND_EVERY: Final = 30  # attempts, about a minute

# as good as for ever: the outbox keeps what is sent, there is nobody to give it back to
_DELIVERY_MS: Final = 2**31 - 1
_TRANSACTION_MS: Final = 30_000


def connect[C](
    connection: Connection,
    make: Callable[[], C],
    stopped: Event,
    purpose: str,
    *,
    makes_probe: bool = False,
) -> C | None:
    """Make a client as soon as a broker answers; blocks. None when it was stopped before.

    ``makes_probe`` says that ``make`` looks for a broker itself: once is enough.
    """
    pause_s, attempts, said = _PAUSE_S, 0, ""
    while not stopped.is_set():
        try:
            if not makes_probe:
                probe_brokers(connection)
            client = make()
        except (BrokerUnreachableError, TopicError, SourceError, KafkaError) as error:
            if str(error) != said or attempts % _REMIND_EVERY == 0:
                said = str(error)
                _log.warning("%s waits: %s", purpose, said or type(error).__name__)
            attempts += 1
            stopped.wait(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)
            continue
        if attempts:
            _log.info("%s goes on: a broker answers", purpose)
        return client
    return None


class StoppableProducer(KafkaProducer):  # type: ignore[misc]
    """A producer that stops at once, where kafka-python's own flushes first."""

    is_halted = False

    @override
    def flush(self, timeout: float | None = None) -> None:
        if not self.is_halted:
            super().flush(timeout)

    def halt(self) -> None:
        """Send nothing any more; never blocks, may be called in its callbacks.

        Whatever it had not sent fails, in any case after this returns.
        """
        self.is_halted = True
        self.close(timeout=0)


def make_producer(
    connection: Connection,
    codec: str,
    linger_ms: int,
    max_bytes: int,
    transactional_id: str | None = None,
    *,
    has_batches: bool = True,
) -> StoppableProducer:
    """Make an idempotent producer that waits for all replicas; blocks.

    ``linger_ms`` is the longest wait for more records of a batch, ``max_bytes`` the largest record.
    With ``transactional_id`` records are of transactions, which give up where no broker answers;
    without ``has_batches`` each record travels alone.

    Raises:
        KafkaError: No broker answers in time.
    """
    return StoppableProducer(
        **connection.client_options(),
        metrics_enabled=False,
        acks="all",
        enable_idempotence=True,
        compression_type=None if codec == "none" else codec,
        linger_ms=linger_ms,
        batch_size=min(max_bytes, 256 * 1024) if has_batches else 0,
        max_request_size=max_bytes,
        max_block_ms=2_000 if transactional_id is None else _TRANSACTION_MS,
        request_timeout_ms=10_000,
        delivery_timeout_ms=_DELIVERY_MS if transactional_id is None else _TRANSACTION_MS,
        transactional_id=transactional_id,
        allow_auto_create_topics=False,
        bootstrap_timeout_ms=BOOTSTRAP_MS,
    )


def close_producer(producer: StoppableProducer, timeout_s: float) -> None:
    """Close a producer, whether or not a broker answers; blocks for ``timeout_s``, then drops.

    What is dropped fails a little later, in the producer's thread.
    """
    try:
        producer.close(timeout=timeout_s)
    except KafkaTimeoutError:
        producer.halt()
