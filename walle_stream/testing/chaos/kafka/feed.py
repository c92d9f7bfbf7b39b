"""Writer of the input to the topic, at a steady rate through all faults of the broker.

One idempotent producer writes each device's events to the partition that a run without a broker
uses, with their own ingest times. So both runs get the same partitions, order and times. At the end
the topic is compared with the file.
"""

import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import msgspec

from walle_stream.clock import monotonic_ms
from walle_stream.errors import ChaosError
from walle_stream.spec.connectors import load_connector
from walle_stream.types import partition_of

_LATE_MS: Final = 30_000
_LOOK_S: Final = 0.02
_FLUSH_S: Final = 60.0


class Line(msgspec.Struct, frozen=True):
    """One event of the input."""

    partition: int
    device: bytes
    value: bytes
    time_ms: int
    """Ingest time in milliseconds."""


class _Head(msgspec.Struct):
    device_id: str
    ingest_time_ms: int


def place_alike(lines: bytes, partitions: int) -> bytes:
    """Rename devices so that both ways of placing them give the same partition.

    A run without a broker places devices by its own rule, messages are placed by Kafka's.

    Args:
        lines: JSON Lines of events.
        partitions: Number of partitions of the topics.
    """
    by_key = load_connector("kafka").device_partition

    @cache
    def renamed(device_id: str) -> str:
        names = (f"{device_id}-{number}" for number in count())
        return next(
            each for each in names if partition_of(each, partitions) == by_key(each, partitions)
        )

    decode = msgspec.json.Decoder(_Head).decode
    found = []
    for line in lines.splitlines(keepends=True):
        old = decode(line).device_id
        found.append(line.replace(f'"{old}"'.encode(), f'"{renamed(old)}"'.encode(), 1))
    return b"".join(found)


def read_lines(file: Path, partitions: int) -> list[Line]:
    """Read the input.

    Args:
        file: JSON Lines of events.
        partitions: Number of partitions of the topic.
    """
    decode = msgspec.json.Decoder(_Head).decode
    lines = []
    for value in file.read_bytes().splitlines():
        head = decode(value)
        number = partition_of(head.device_id, partitions)
        lines.append(Line(number, head.device_id.encode(), value, head.ingest_time_ms))
    return lines


class Feed:
    """The writing thread."""

    def __init__(
        self,
        client: Mapping[str, Any],
        topic: str,
        lines: Sequence[Line],
        per_s: float,
        written: Sequence[int],
    ) -> None:
        """Start writing.

        Args:
            client: Arguments of kafka-python's clients.
            topic: Topic that only this feed writes.
            lines: The input in the order of arrival.
            per_s: Events per second.
            written: Number of records already in each partition; that many lines are skipped.
        """
        self._client = dict(client)
        self._topic = topic
        self._lines = _behind(lines, written)
        self._per_s = per_s
        self._hurried = Event()
        self._stopped = Event()
        self.failure: BaseException | None = None
        """The error that ended the feed early."""
        self._thread = Thread(target=self._run, name="walle-chaos-feed", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the feed has written all lines, or failed."""
        return not self._thread.is_alive()

    def hurry(self) -> None:
        """Write the remaining lines at full speed."""
        self._hurried.set()

    def close(self) -> None:
        """Stop writing; may be called twice."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - the life reports it
            self.failure = error

    def _write(self) -> None:
        from kafka import KafkaProducer  # noqa: PLC0415 - an extra

        producer = KafkaProducer(
            **self._client,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=5_000,
            max_block_ms=120_000,
            # a broker may be down for long, and an expired record would be missing
            delivery_timeout_ms=2**31 - 1,
            reconnect_backoff_max_ms=500,
        )
        failures: list[BaseException] = []
        began_ms = monotonic_ms()
        try:
            for count, line in enumerate(self._lines):
                due_ms = began_ms + count * 1000.0 / self._per_s
                while not self._hurried.is_set() and monotonic_ms() < due_ms:
                    if self._stopped.wait(_LOOK_S):
                        return
                if self._stopped.is_set():
                    return
                producer.send(
                    self._topic,
                    line.value,
                    key=line.device,
                    partition=line.partition,
                    timestamp_ms=line.time_ms,
                ).add_errback(failures.append)
                if failures:
                    raise failures[0]
            producer.flush(_FLUSH_S)
            if failures:
                raise failures[0]
        finally:
            producer.close(timeout=1)


def _behind(lines: Sequence[Line], written: Sequence[int]) -> list[Line]:
    left = list(written)
    rest = []
    for line in lines:
        if left[line.partition] > 0:
            left[line.partition] -= 1
        else:
            rest.append(line)
    return rest


def expect_lines(client: Mapping[str, Any], topic: str, lines: Sequence[Line]) -> int:
    """Check that a topic has the input, in order; blocks.

    Returns:
        Number of extra copies of input records. A broker that is killed between a write and its
        answer was seen to accept the batch twice, despite idempotence. Copies have the same uid,
        so the pipeline must drop them.

    Raises:
        ChaosError: The topic differs otherwise, which is the feed's fault, not the pipeline's.
    """
    from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 - an extra

    wanted: dict[int, list[bytes]] = {}
    for line in lines:
        wanted.setdefault(line.partition, []).append(line.value)
    consumer = KafkaConsumer(
        **client, auto_offset_reset="earliest", enable_auto_commit=False, metrics_enabled=False
    )
    found: dict[int, list[bytes]] = {number: [] for number in wanted}
    try:
        places = [TopicPartition(topic, number) for number in wanted]
        left = sum(consumer.end_offsets(places).values())
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        until_s = time.monotonic() + _LATE_MS / 1000.0
        while left and time.monotonic() < until_s:
            for place, records in consumer.poll(500).items():
                found[place.partition] += [record.value for record in records]
                left -= len(records)
    finally:
        consumer.close(autocommit=False)
    if left:
        raise ChaosError(f"{left} records of the input cannot be read back from {topic!r}")
    for number, values in wanted.items():
        # the input itself also repeats events
        if list(dict.fromkeys(found[number])) != list(dict.fromkeys(values)):
            raise ChaosError(
                f"partition {number} of {topic!r} has {len(found[number])} records, which differ "
                f"from the {len(values)} records of the input: the feed failed"
            )
    return sum(map(len, found.values())) - len(lines)
