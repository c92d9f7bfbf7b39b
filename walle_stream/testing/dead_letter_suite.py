"""Conformance suite for sinks of dead letters, as partitions and ``walle dead-letters`` use them.

Subclass ``DeadLetterSuite`` and implement ``open_sink`` and ``open_archive``: a ``DeadLetterSink``
and a ``DeadLetterArchive`` of one place, which is new and empty for every test.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import blake2b
from threading import Event, Thread
from typing import Any, Final

import pytest

from walle_stream.clock import monotonic_ms
from walle_stream.ports import (
    RECORD_MAX_BYTES,
    DeadLetter,
    DeadLetterArchive,
    DeadLetterSink,
    KeptLetter,
)

_WAIT_MS: Final = 60_000
_POLL_S: Final = 0.01
_MANY: Final = 300
_RECORDS: Final = (b"{", b"\x00\xff\r\n", "gerät 🎈".encode(), b"", b"x" * 100_000)


class DeadLetterSuite(ABC):
    """Tests that every sink of dead letters must pass."""

    @abstractmethod
    def open_sink(self) -> DeadLetterSink:
        """Open the sink under test."""

    @abstractmethod
    def open_archive(self) -> DeadLetterArchive:
        """Open the archive of the sink's letters."""

    def test_every_letter_is_acknowledged_once_and_to_its_partition(self) -> None:
        """Acknowledgements may come in any order, but only for their own partition."""
        sink = self.open_sink()
        for number in range(_MANY):
            sink.send(kept_letter(number % 3, number))
        for partition in range(3):
            own = [number for number in range(_MANY) if number % 3 == partition]
            assert sorted(_acks(sink, partition, len(own))) == own
            assert list(sink.acks(partition)) == []
        sink.close()

    def test_what_was_acknowledged_is_there_as_it_was_sent(self) -> None:
        """Letter, record and key come back unchanged, for any bytes."""
        sent = [kept_letter(2, n, record) for n, record in enumerate(_RECORDS, 1)]
        page = {"route": "task", "task": "ipv", "error": "KeyError", "attempts": 3, "holds": "page"}
        sent.append(kept_letter(2, 20, b"[]", **page))
        sent.append(kept_letter(0, 21, b"no device", device_id=""))
        self._send(sent)
        found = {each.idempotency_key: each for each in self._archived()}
        assert found == {each.idempotency_key: each for each in sent}

    def test_a_large_record_arrives_at_least_in_part_and_says_so(self) -> None:
        """A cut record is never taken for a whole one."""
        self._send([kept_letter(0, 1, b"y" * RECORD_MAX_BYTES)])
        [found] = self._archived()
        record = found.letter.record
        assert 0 < len(record) <= RECORD_MAX_BYTES
        assert record == b"y" * len(record)
        assert found.is_whole == (len(record) == RECORD_MAX_BYTES)
        assert found.letter.size_bytes == RECORD_MAX_BYTES

    def test_small_letters_beside_large_ones_are_whole(self) -> None:
        """A letter that is too large does not cut other letters."""
        sent = [kept_letter(0, n, b"z" * (RECORD_MAX_BYTES if n == 4 else 50)) for n in range(1, 9)]  # noqa: PLR2004 - any
        self._send(sent)
        found = {each.number: each for each in self._archived()}
        assert found.keys() == {each.number for each in sent}
        assert all(each.is_whole for number, each in found.items() if number != 4)  # noqa: PLR2004 - same

    def test_a_letter_sent_again_has_the_same_key(self) -> None:
        """Delivery is at least once, and readers can detect repetitions."""
        for _ in range(2):
            self._send([kept_letter(0, 1), kept_letter(0, 2)])
        keys = {each.idempotency_key for each in self._archived()}
        assert keys == {kept_letter(0, number).idempotency_key for number in (1, 2)}

    def test_sending_waits_for_nobody(self) -> None:
        """Sending does not block, even while acknowledgements are not taken."""
        sink = self.open_sink()

        def send() -> None:
            for number in range(_MANY):
                sink.send(kept_letter(0, number, b"x" * 10_000))

        sender = Thread(target=send)
        sender.start()
        sender.join(_WAIT_MS / 1000)
        assert not sender.is_alive()
        assert len(_acks(sink, 0, _MANY)) == _MANY
        sink.close()

    def test_a_sink_that_took_nothing_closes_twice(self) -> None:
        """An unused sink leaves no letters."""
        sink = self.open_sink()
        sink.close()
        sink.close()
        assert self._archived() == []

    def test_marks_are_found_by_who_opens_it_next(self) -> None:
        """Marks persist and do not count as letters."""
        self._send([kept_letter(0, 1), kept_letter(0, 2)])
        archive = self.open_archive()
        assert archive.replayed() == set()
        keys = [each.idempotency_key for each in archive.letters()]
        archive.mark(keys[:1])
        archive.mark([])
        archive.close()
        archive = self.open_archive()
        assert archive.replayed() == set(keys[:1])
        assert len(list(archive.letters())) == len(keys)
        archive.close()
        archive.close()

    def _send(self, letters: Sequence[KeptLetter]) -> None:
        sink = self.open_sink()
        for kept in letters:
            sink.send(kept)
        for partition in {kept.partition for kept in letters}:
            wanted = sorted(kept.number for kept in letters if kept.partition == partition)
            assert sorted(_acks(sink, partition, len(wanted))) == wanted
        sink.close()

    def _archived(self) -> list[KeptLetter]:
        archive = self.open_archive()
        try:
            return list(archive.letters())
        finally:
            archive.close()


def kept_letter(partition: int, number: int, record: bytes = b"{", **fields: Any) -> KeptLetter:
    """Return a letter for tests of sinks.

    Args:
        partition: Partition of the letter.
        number: Number of the letter.
        record: The refused record.
        fields: Fields of ``DeadLetter`` that override the defaults.
    """
    given: dict[str, Any] = {
        "route": "decode",
        "reason": "is no JSON: 'ü'",
        "origin": f"events[{partition}]@{number}",
        "device_id": "gerät-1",
        "raw": record.decode(errors="replace")[:1_024],
        "digest": blake2b(record, digest_size=16).hexdigest(),
        "size_bytes": len(record),
        "record": record,
    }
    return KeptLetter(
        letter=DeadLetter(**(given | fields)),
        pipeline="shop",
        incarnation="0123456789abcdef",
        partition=partition,
        number=number,
    )


def _acks(sink: DeadLetterSink, partition: int, count: int) -> list[int]:
    found: list[int] = []
    deadline_ms, tick = monotonic_ms() + _WAIT_MS, Event()
    while len(found) < count:
        found += sink.acks(partition)
        if monotonic_ms() > deadline_ms:
            pytest.fail(f"{len(found)} of {count} letters were acknowledged")
        tick.wait(_POLL_S)
    return found
