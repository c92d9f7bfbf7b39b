"""Any source, cut by partition: the same to every partition as in one piece, from any offset on."""

import csv
import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from tests.property import test_files_property as rows_of_files
from tests.property import test_packed_property as packed
from walle_connectors.events import CONNECTOR as EVENTS
from walle_stream.app.cutting import cut
from walle_stream.ports import Source, SourceBatch
from walle_stream.reading.parts import PartedSource
from walle_stream.store.objects import FolderObjects
from walle_stream.testing.source_log import (
    add,
    expect_same,
    new_log,
    offsets_of,
    read_out,
)

PARTITIONS = 3
sizes = st.sampled_from([1, 2, 5, 100])
# rows that are no rows, rows of nobody, a number beyond 64 bits
broken = st.lists(
    st.sampled_from([b"{", b"[]", b"", b"\xff\n", b'"a"x\n', b",x,1,0,0\n", b"a,b\n"]), max_size=4
)
huge = b'{"device_id":"%c","id":"tap","kind":"click","page_id":"p","page_instance":"","event_time_ms":1,"ingest_time_ms":1,"contents":{"n":%d}}'


class Keys(BaseModel):
    path: Path


def parted(source: Source, folder: Path) -> PartedSource:
    keys = Keys(path=folder)
    cut(source, keys, folder, PARTITIONS)
    return PartedSource(keys, FolderObjects(keys.path))


def read(source: Source, data: st.DataObject) -> list[SourceBatch]:
    """Read by some hosts, each its own partitions."""
    homes = data.draw(st.lists(st.integers(0, 2), min_size=PARTITIONS, max_size=PARTITIONS))
    batches = []
    for host in range(3):
        own = [number for number, home in enumerate(homes) if home == host]
        size = data.draw(sizes)
        batches += read_out(source.open({}, PARTITIONS, size, numbers=own))
    return batches


def check(source: Source, data: st.DataObject) -> None:
    whole = new_log(PARTITIONS)
    add(whole, read_out(source.open({}, PARTITIONS, 100)))
    with tempfile.TemporaryDirectory() as folder:
        parts = parted(source, Path(folder) / "parts")
        batches = read(parts, data)
        log = new_log(PARTITIONS)
        add(log, batches)
        expect_same(log, whole, "parts")
        # every partition was killed somewhere else; some rows more, then the rest
        log = new_log(PARTITIONS)
        for number in range(PARTITIONS):
            own = [batch for batch in batches if batch.partition == number]
            add(log, own[: data.draw(st.integers(0, len(own)))])
        for limit in (data.draw(st.integers(0, 12)), None):
            size = data.draw(sizes)
            before = sum(each.counts.source_rows for each in log.values())
            add(log, read_out(parts.open(offsets_of(log), PARTITIONS, size, limit)))
            rows = sum(each.counts.source_rows for each in log.values()) - before
            assert limit is None or rows <= limit
        expect_same(log, whole, "parts, resumed")


@given(found=rows_of_files.rows, order=rows_of_files.orders, wrong=broken, data=st.data())
@settings(max_examples=60)
def test_rows_with_a_mapping(
    found: Sequence[rows_of_files.Row],
    order: rows_of_files.Order,
    wrong: list[bytes],
    data: st.DataObject,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        text = io.StringIO()
        csv.writer(text).writerows([rows_of_files.Row._fields, *found])
        lines = text.getvalue().encode().splitlines(keepends=True)
        for line in wrong:
            lines.insert(data.draw(st.integers(1, len(lines))), line)
        path.write_bytes(b"".join(lines))
        check(rows_of_files.opened(path, order), data)


@given(found=packed.records, wrong=broken, data=st.data())
@settings(max_examples=40)
def test_lines_of_events(found: packed.Records, wrong: list[bytes], data: st.DataObject) -> None:
    lines = packed.lines_of(found).splitlines(keepends=True)
    for line in [*wrong, huge % (b"a", 2**70), huge % (b"b", 1)][: data.draw(st.integers(0, 6))]:
        lines.insert(data.draw(st.integers(0, len(lines))), line.strip() + b"\n")
    with packed.written(b"".join(lines)) as source:
        check(source, data)


@given(found=packed.records, data=st.data())
@settings(max_examples=40)
def test_packed_events(found: packed.Records, data: st.DataObject) -> None:
    file = b"".join(packed.blocks_of(found, data.draw(packed.block_sizes)))
    with packed.written(packed.damaged(data, file)) as source:
        check(source, data)


def test_a_parts_folder_stands_in_the_place_of_a_file(tmp_path: Path) -> None:
    model = EVENTS.model.model_validate({"path": tmp_path})
    assert isinstance(EVENTS.open(model), PartedSource)
