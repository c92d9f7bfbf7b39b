"""A topic's records through kafka-python: the driver ``kafka-python``."""

import time
from collections.abc import Sequence
from typing import Any, Final

from kafka import TopicPartition, errors
from walle_connectors.kafka.connecting import Reminder
from walle_connectors.kafka.python_errors import is_gone, source_errors
from walle_connectors.kafka.source.client import TopicClient
from walle_connectors.kafka.source.fetching import Polled, columns
from walle_stream.clock import monotonic_ms

_AGAIN_MS: Final = 100
_REFUSED: Final = errors.SaslAuthenticationFailedError
_GONE_MS: Final = 5_000.0  # wait for a deleted topic that may be recreated


class PythonFetcher:
    """kafka-python's consumer as a ``Fetcher``; its client closes it."""

    def __init__(self, client: TopicClient, consumer: Any, *, has_headers: bool = False) -> None:
        """Use a consumer that the caller keeps owning; the client knows the topic."""
        self._client, self._consumer = client, consumer
        self._has_headers = has_headers
        self._paused: set[Any] = set()
        self._reminder = Reminder()
        self._gone_since_ms = 0.0

    def assign(self, numbers: Sequence[int]) -> None:
        """Set the partitions to fetch; see ``Fetcher.assign``."""
        with source_errors(self._client.topic):
            self._consumer.assign([self._place(number) for number in numbers])

    def begin_anew(self) -> None:
        """Do nothing: the library already uses the new topic's id; see ``Fetcher``."""

    def seek(self, number: int, offset: int) -> None:
        """Set the next offset; see ``Fetcher.seek``."""
        with source_errors(self._client.topic):
            self._consumer.seek(self._place(number), offset)

    def pause(self, number: int) -> None:
        """Stop fetching as soon as the library can; see ``Fetcher.pause``."""
        self._paused.add(self._place(number))

    def resume(self, number: int) -> None:
        """Continue fetching a partition; see ``Fetcher.resume``."""
        place = self._place(number)
        self._paused.discard(place)
        self._consumer.resume(place)

    def position(self, number: int) -> int | None:
        """Return the next offset; see ``Fetcher.position``."""
        with source_errors(self._client.topic):
            at: int | None = self._consumer.position(self._place(number), timeout_ms=0)
        return at

    def end(self, number: int) -> int:
        """Return the offset after the newest record; see ``Fetcher.end``."""
        with source_errors(self._client.topic):
            place = self._place(number)
            is_ours = place in self._consumer.assignment()
            return (self._consumer.highwater(place) or -1) if is_ours else -1

    def poll(self, wait_ms: int, most: int) -> Polled:
        """Return records; see ``Fetcher.poll``.

        Raises:
            KafkaError: Never, since it is translated to one of our errors.
        """
        with source_errors(self._client.topic):
            try:
                found = self._consumer.poll(wait_ms, max_records=most)
            except errors.OffsetOutOfRangeError as error:
                # retention deleted the records before we read them
                return Polled(gone=[place.partition for place in error.args[0]])
            except errors.LogTruncationError as error:
                # the new leader lacks the newest records, or the topic was recreated
                return Polled(cut=[place.partition for place in error.divergent_offsets])
            except errors.KafkaError as error:
                # a group's listener ends a poll with this cause
                if isinstance(error.__cause__, InterruptedError):
                    return Polled()
                if not self._may_come_back(error):
                    raise
                # a restarted broker answers before it knows any broker; the library asks again
                # with the next poll
                self._tell_wait(error)
                time.sleep(min(wait_ms, _AGAIN_MS) / 1000.0)
                return Polled()
        self._gone_since_ms = 0.0
        if self._paused and sum(map(len, found.values())) < most:
            # Pause only now, when the library holds no more records. If it holds records of a
            # paused partition, it may never return or fetch any, even when resumed (3.0.12).
            self._consumer.pause(*self._paused & self._consumer.assignment())
        return Polled(
            {
                place.partition: columns(records, has_headers=self._has_headers)
                for place, records in found.items()
                if place not in self._paused
            }
        )

    def _may_come_back(self, error: Any) -> bool:
        if not is_gone(error):
            # a token may be renewed
            return bool(error.retriable) or isinstance(error, _REFUSED)
        # the next metadata show whether the topic was recreated; the reader handles that
        now_ms = monotonic_ms()
        self._gone_since_ms = self._gone_since_ms or now_ms
        return self._client.is_remade or now_ms - self._gone_since_ms < _GONE_MS

    def _tell_wait(self, error: Any) -> None:
        kind, what = (
            type(error).__name__,
            f"topic {self._client.topic!r}: reading waits for the brokers",
        )
        is_login = isinstance(error, _REFUSED)
        reason = f"they refuse the login in `sasl`: {error}" if is_login else kind
        self._reminder.warn(kind, f"{what} ({reason})")

    def _place(self, number: int) -> Any:
        return TopicPartition(self._client.topic, number)

    def close(self) -> None:
        """Do nothing: its client closes the consumer."""
