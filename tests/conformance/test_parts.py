"""A source that was cut by partition keeps the contract, and gives what the source in one piece does."""

import shutil
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.conformance import test_source as pieces
from walle_stream.app.cutting import cut
from walle_stream.errors import SourceError
from walle_stream.ports import Source
from walle_stream.reading.parts import PartedSource
from walle_stream.store.objects import FolderObjects
from walle_stream.testing.source_log import add, expect_same, new_log, read_out
from walle_stream.testing.source_suite import SourceSuite
from walle_stream.types import partition_of


class Keys(BaseModel):
    path: Path


class Parted(SourceSuite):
    """The source of another suite, in parts."""

    def make_source(self, folder: Path) -> Source:
        keys = Keys(path=folder / "parts")
        if not keys.path.exists():
            self.cut(super().make_source(folder), keys)
        return PartedSource(keys, FolderObjects(keys.path))

    def cut(self, source: Source, keys: Keys) -> None:
        cut(source, keys, keys.path, self.partition_count)

    def make_changed_source(self, folder: Path) -> Source | None:
        shutil.rmtree(folder / "parts")
        return super().make_changed_source(folder)

    def test_devices_are_where_the_pipeline_has_them(self, tmp_path: Path) -> None:
        source, count = self.make_source(tmp_path), self.partition_count
        for batch in read_out(source.open({}, count, 3)):
            assert all(
                partition_of(event.device_id, count) == batch.partition for event in batch.events
            )
        with pytest.raises(SourceError, match="by another rule: run walle partition again"):
            source.open({}, count, 3, None, lambda _device, count: count - 1)
        with pytest.raises(
            SourceError, match=r"4 parts, but the pipeline 5 .* spec.runtime.partitions=4"
        ):
            source.open({}, count + 1, 3)

    def test_raw_rows_come_where_they_are_asked_for(self, tmp_path: Path) -> None:
        reader = self.make_source(tmp_path).open({}, self.partition_count, 3)
        reader.keeps_raw = True
        with pytest.raises(SourceError, match="no raw rows"):
            reader.read()

    def test_it_is_the_source_in_one_piece(self, tmp_path: Path) -> None:
        logs = [new_log(self.partition_count) for _ in range(2)]
        for log, source in zip(
            logs, (super().make_source(tmp_path), self.make_source(tmp_path)), strict=True
        ):
            add(log, read_out(source.open({}, self.partition_count, 1_000)))
        expect_same(*reversed(logs), "parts")

    def test_readers_of_some_partitions_share_a_limit(self, tmp_path: Path) -> None:
        count = self.partition_count
        for limit in (1, 5, 6, 1_000, None):
            wanted, found = new_log(count), new_log(count)
            add(wanted, self.batches(tmp_path, batch_events=2, limit=limit))
            for own in ([0, 3], [], [2], [1]):
                reader = self.make_source(tmp_path).open({}, count, 3, limit, numbers=own)
                batches = read_out(reader)
                assert {batch.partition for batch in batches} <= set(own)
                add(found, batches)
            expect_same(found, wanted, f"limit={limit}")


class TestPartedCsv(Parted, pieces.TestCsvSource):
    """Quotes, one order for all devices."""


class TestPartedJson(Parted, pieces.TestJsonSource):
    """Exploded lists, lateness."""


class TestPartedEvents(Parted, pieces.TestEventsSource):
    """Broken and overlong lines."""


class TestPartedPackedEvents(Parted, pieces.TestPackedEventsSource):
    """Damaged blocks."""
