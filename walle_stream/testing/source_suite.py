"""Conformance suite for sources: tests that every adapter of ``ports.Source`` must pass.

Subclass ``SourceSuite`` in a test module of pytest and implement ``make_source``; all tests then
run against it. The suite reads only through the port, so it fits files, logs and brokers alike.

Example::

    class TestMySource(SourceSuite):
        def make_source(self, folder: Path) -> Source:
            return MySource(...)   # bounded, the same content on every call
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import ClassVar

import msgspec

from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.ports import Source, SourceBatch
from walle_stream.testing.source_log import (
    SourceLog,
    add,
    expect_same,
    new_log,
    offsets_of,
    read_out,
)
from walle_stream.types import partition_of


class SourceSuite(ABC):
    """Tests of a bounded source; subclass it once per adapter."""

    partition_count: ClassVar[int] = 4
    """Number of partitions with which the source is opened."""

    @abstractmethod
    def make_source(self, folder: Path) -> Source:
        """Return a bounded source with rows of several devices.

        Args:
            folder: Empty at the first call of a test. A later call of the same test must return
                the same source again.
        """

    def make_changed_source(self, folder: Path) -> Source | None:
        """Return a source that differs from the first one, or None to skip.

        Args:
            folder: Folder of ``make_source``.
        """
        del folder
        return None

    # Reading

    def test_cuts_into_batches_do_not_matter(self, tmp_path: Path) -> None:
        """Every batch size gives the same events, counts and dead letters."""
        whole = self.read_all(tmp_path, batch_events=1_000)
        expect(sum(len(log.events) for log in whole.values()) > 0, "the source gives no events")
        for batch_events in (1, 2, 3, 7):
            parts = self.read_all(tmp_path, batch_events=batch_events)
            expect_same(parts, whole, f"batch_events={batch_events}")

    def test_batches_are_not_larger_than_asked(self, tmp_path: Path) -> None:
        """No batch has more than ``batch_events`` events."""
        for batch_events in (1, 5):
            for batch in self.batches(tmp_path, batch_events=batch_events):
                expect(len(batch.events) <= batch_events, f"{len(batch.events)} events")

    def test_every_partition_ends_once(self, tmp_path: Path) -> None:
        """Each partition gets the natural end exactly once, as its last batch."""
        batches = self.batches(tmp_path, batch_events=3)
        for partition in range(self.partition_count):
            own = [batch for batch in batches if batch.partition == partition]
            ends = [batch.is_end for batch in own]
            expect(ends.count(True) == 1 and ends[-1], f"partition {partition}: {ends}")

    def test_counts_add_up(self, tmp_path: Path) -> None:
        """Rows are accepted, duplicate, late or dead letters, nothing else."""
        for batch in self.batches(tmp_path, batch_events=3):
            counts = batch.counts
            parts = counts.accepted_rows + counts.duplicate_rows + counts.late_rows
            expect(counts.source_rows == parts + counts.dead_letter_rows, repr(counts))

    def test_a_device_stays_in_its_partition(self, tmp_path: Path) -> None:
        """All events of a device come in one partition, within range."""
        homes: dict[str, int] = {}
        for batch in self.batches(tmp_path, batch_events=100):
            expect(0 <= batch.partition < self.partition_count, f"partition {batch.partition}")
            for event in batch.events:
                home = homes.setdefault(event.device_id, batch.partition)
                expect(home == batch.partition, f"device {event.device_id} moved")

    def test_devices_are_where_the_pipeline_has_them(self, tmp_path: Path) -> None:
        """The pipeline places devices, unless the source has a ``partition_count`` of its own."""
        source, count = self.make_source(tmp_path), self.partition_count
        if hasattr(type(source), "partition_count"):
            return

        def backwards(device_id: str, count: int) -> int:
            return count - 1 - partition_of(device_id, count)

        for placing in (partition_of, backwards):
            for batch in read_out(source.open({}, count, 3, None, placing)):
                for event in batch.events:
                    home = placing(event.device_id, count)
                    expect(batch.partition == home, f"device {event.device_id} is not in {home}")

    def test_raw_rows_come_where_they_are_asked_for(self, tmp_path: Path) -> None:
        """Raw rows equal the counted bytes for every batch size."""
        for batch in self.batches(tmp_path, batch_events=3):
            expect(batch.raw is None, "raw rows came without a request")
        wholes = []
        for batch_events in (1_000, 1, 3):
            reader = self.make_source(tmp_path).open({}, self.partition_count, batch_events)
            reader.keeps_raw = True
            whole = dict.fromkeys(range(self.partition_count), b"")
            for batch in read_out(reader):
                raw, counted = batch.raw or b"", batch.counts.raw_bytes
                is_plain = not any(each.route == "oversized" for each in batch.dead_letters)
                expect(len(raw) <= counted, f"{len(raw)} raw bytes where {counted} are counted")
                expect(len(raw) == counted or not is_plain, f"{len(raw)} of {counted} raw bytes")
                whole[batch.partition] += raw
            wholes.append(whole)
        expect(any(wholes[0].values()), "no raw rows despite the request")
        expect(wholes[1:] == wholes[:1] * 2, "raw rows depend on how batches are cut")

    def test_progress_and_close(self, tmp_path: Path) -> None:
        """Progress is a share or unknown, unread counts never grow, and two closes are allowed."""
        reader = self.make_source(tmp_path).open({}, self.partition_count, 10)
        before = reader.unread
        while not reader.is_done:
            expect(reader.progress <= 1, f"progress {reader.progress}")
            reader.read()
            now = reader.unread
            for left, old in ((now.rows, before.rows), (now.size_bytes, before.size_bytes)):
                expect(-1 <= left <= old or old < 0, f"{left} unread, {old} before")
            before = now
            expect(now.time_ms >= -1, f"{now.time_ms} ms unread")
        lefts = (before.rows, before.size_bytes, before.time_ms)
        expect(max(lefts) <= 0, f"{before} is unread at the end")
        reader.close()
        reader.close()

    # Resuming

    def test_any_committed_offsets_give_the_rest(self, tmp_path: Path) -> None:
        """Offsets of different runs and times combine without lost or doubled events."""
        whole = self.read_all(tmp_path, batch_events=1_000)
        chance = random.Random(1)  # noqa: S311 - a seeded choice, no secret
        runs = [self.batches(tmp_path, batch_events=size) for size in (1, 2, 5)]
        for _ in range(25):
            log = new_log(self.partition_count)
            for partition in range(self.partition_count):
                run = [each for each in chance.choice(runs) if each.partition == partition]
                add(log, run[: chance.randint(0, len(run))])
            size = chance.choice((1, 3, 1_000))
            add(log, self.batches(tmp_path, batch_events=size, offsets=offsets_of(log)))
            expect_same(log, whole, "resumed")

    def test_a_finished_source_gives_nothing_again(self, tmp_path: Path) -> None:
        """Opening at the offsets after the end gives no batch."""
        offsets = offsets_of(self.read_all(tmp_path, batch_events=10))
        again = self.batches(tmp_path, batch_events=10, offsets=offsets)
        expect(not again, f"{len(again)} batches after the end")

    def test_limits_then_the_rest_are_the_whole(self, tmp_path: Path) -> None:
        """Several runs with a limit and a run without one give all rows."""
        whole = self.read_all(tmp_path, batch_events=1_000)
        for limit in (1, 4, 9):
            log = new_log(self.partition_count)
            for run in range(1, 4):
                offsets = offsets_of(log)
                part = self.batches(tmp_path, batch_events=3, offsets=offsets, limit=limit)
                add(log, part)
                rows = sum(each.counts.source_rows for each in log.values())
                expect(rows <= run * limit, f"{rows} rows after {run} runs of limit {limit}")
                is_stopped = rows == run * limit
                expect(not (is_stopped and any(b.is_end for b in part)), "a limit is no end")
            add(log, self.batches(tmp_path, batch_events=3, offsets=offsets_of(log)))
            expect_same(log, whole, f"limit={limit}")

    def test_readers_of_some_partitions_are_one_reader(self, tmp_path: Path) -> None:
        """Readers of some partitions give only their own events, and share a limit."""
        whole = self.read_all(tmp_path, batch_events=1_000)
        every = range(self.partition_count)
        for limit in (6, None):
            log = new_log(self.partition_count)
            for own in (every[::2], every[1::2], ()):
                source = self.make_source(tmp_path)
                batches = read_out(source.open({}, len(every), 3, limit, numbers=own))
                strange = {batch.partition for batch in batches} - set(own)
                expect(not strange, f"partitions {strange} where {own} are wanted")
                add(log, batches)
            rows = sum(each.counts.source_rows for each in log.values())
            expect(limit is None or rows <= limit, f"{rows} rows with a limit of {limit}")
            add(log, self.batches(tmp_path, batch_events=3, offsets=offsets_of(log)))
            expect_same(log, whole, f"read by some, limit={limit}")

    def test_drain_releases_nothing_and_loses_nothing(self, tmp_path: Path) -> None:
        """A stop after any number of reads, and then a second run, give all rows."""
        whole = self.read_all(tmp_path, batch_events=1_000)
        for reads in range(4):
            reader = self.make_source(tmp_path).open({}, self.partition_count, 2)
            log = new_log(self.partition_count)
            for _ in range(reads):
                if not reader.is_done:
                    add(log, reader.read())
            if not reader.is_done:
                drained = reader.drain()
                expect(not any(batch.is_end for batch in drained), "drained an end")
                add(log, drained)
            reader.close()
            add(log, self.batches(tmp_path, batch_events=3, offsets=offsets_of(log)))
            expect_same(log, whole, f"drained after {reads} reads")

    def test_the_batch_size_may_change_between_reads(self, tmp_path: Path) -> None:
        """Alternating batch sizes give the same events."""
        whole = self.read_all(tmp_path, batch_events=1_000)
        log = new_log(self.partition_count)
        reader = self.make_source(tmp_path).open({}, self.partition_count, 4)
        sizes, most = cycle((4, 1, 3, 100, 2)), 0
        while not reader.is_done:
            reader.batch_events = next(sizes)
            # rows collected before may still come in one batch
            most = max(most, reader.batch_events)
            found = reader.read()
            longest = max((len(batch.events) for batch in found), default=0)
            expect(longest <= most, f"{longest} events where {most} were asked for")
            add(log, found)
        reader.close()
        expect_same(log, whole, "batches of changing size")

    def test_a_foreign_offset_is_refused(self, tmp_path: Path) -> None:
        """Bytes that are no offset of this source raise SourceError.

        Raises:
            AssertionError: The offset was accepted.
        """
        for offset in (b"", b"\x00\x01", b'{"other": 1}'):
            try:
                reader = self.make_source(tmp_path).open({0: offset}, self.partition_count, 10)
            except SourceError:
                continue
            reader.close()
            raise AssertionError(f"the offset {offset!r} was accepted")

    # Identity

    def test_fingerprint_is_plain_and_stable(self, tmp_path: Path) -> None:
        """The fingerprint survives JSON, and its own source accepts it."""
        stored = dict(self.make_source(tmp_path).fingerprint)
        again = msgspec.json.decode(msgspec.json.encode(stored))
        expect(again == dict(self.make_source(tmp_path).fingerprint), f"{again}")
        self.make_source(tmp_path).check_fingerprint(again)

    def test_another_source_is_refused(self, tmp_path: Path) -> None:
        """A source that changed does not accept the stored fingerprint.

        Raises:
            AssertionError: The fingerprint was accepted.
        """
        stored = dict(self.make_source(tmp_path).fingerprint)
        changed = self.make_changed_source(tmp_path)
        if changed is None:
            return
        try:
            changed.check_fingerprint(stored)
        except SourceChangedError:
            return
        raise AssertionError("a changed source accepted the fingerprint")

    # Running a source

    def batches(
        self,
        folder: Path,
        *,
        batch_events: int,
        offsets: Mapping[int, bytes] | None = None,
        limit: int | None = None,
    ) -> list[SourceBatch]:
        """Open a new source, read it until it is done, and return all batches.

        Args:
            folder: Folder for ``make_source``.
            batch_events: Largest number of events in a batch.
            offsets: Offsets to start at; None for the beginning.
            limit: Largest number of rows.
        """
        source = self.make_source(folder)
        return read_out(source.open(offsets or {}, self.partition_count, batch_events, limit))

    def read_all(self, folder: Path, *, batch_events: int) -> SourceLog:
        """Return the output of a whole run.

        Args:
            folder: Folder for ``make_source``.
            batch_events: Largest number of events in a batch.
        """
        log = new_log(self.partition_count)
        add(log, self.batches(folder, batch_events=batch_events))
        return log


def expect(holds: bool, message: str) -> None:
    """Fail a test unless a condition holds.

    Args:
        holds: The condition.
        message: Description of a failure.

    Raises:
        AssertionError: The condition does not hold.
    """
    if not holds:
        raise AssertionError(message)
