"""Cutting a source by partition: what is whole, what is left, what is refused."""

import errno
import json
from pathlib import Path

import pytest

from tests.conformance.test_parts import Keys
from walle_connectors.events import CONNECTOR
from walle_connectors.kafka import CONNECTOR as KAFKA
from walle_stream.app import cutting
from walle_stream.app.cutting import cut, cut_source
from walle_stream.errors import (
    SourceChangedError,
    SourceError,
    SourceNotFoundError,
    SpecFileError,
    StoreFullError,
    StoreLockedError,
)
from walle_stream.reading.parts import PartedSource
from walle_stream.reading.parts.layout import MANIFEST, Manifest, part_name
from walle_stream.store.objects import FolderObjects
from walle_stream.testing.source_log import read_out
from walle_stream.types import placing_mark

PIPELINE = """
apiVersion: walle/v1
kind: Pipeline
metadata: {name: p}
spec:
  source: {connector: events, path: shop.jsonl}
  runtime: {partitions: 4}
  tasks: [{task: t}]
---
apiVersion: walle/v1
kind: Task
metadata: {name: t}
spec: {version: "1", script: t.py, triggers: [{sequence: [click]}]}
"""


def line(number):
    event = {"device_id": f"d{number}", "id": "c", "kind": "click", "page_id": "p"}
    return json.dumps(
        event | {"page_instance": "", "event_time_ms": number, "ingest_time_ms": number}
    )


@pytest.fixture
def pipeline(tmp_path):
    (tmp_path / "p.yaml").write_text(PIPELINE)
    (tmp_path / "t.py").touch()
    (tmp_path / "shop.jsonl").write_text("".join(line(n) + "\n" for n in range(50)))
    return tmp_path / "p.yaml"


def make(pipeline, *overrides, out=None):
    folder, manifest = cut_source(pipeline, overrides, out, lambda _share, _events: None)
    return Path(folder), manifest


def source_of(folder):
    return CONNECTOR.open(CONNECTOR.model.model_validate({"path": folder}))


def read(folder, *numbers, limit=None):
    source = source_of(folder)
    return read_out(source.open({}, 4, 100, limit, numbers=numbers or None))


def events_of(batches):
    return sorted(event.event_time_ms for batch in batches for event in batch.events)


def test_parts_lie_beside_the_file_and_have_all_of_it(pipeline, tmp_path):
    shares = []
    folder, manifest = cut_source(pipeline, (), None, lambda *told: shares.append(told))
    assert folder == str(tmp_path / "shop.jsonl.parts")
    assert sum(part.rows for part in manifest.parts) == 50
    assert shares[-1] == (1.0, 50)
    assert events_of(read(folder)) == list(range(50))


def test_a_host_opens_its_own_parts_alone(pipeline):
    folder, manifest = make(pipeline)
    for number in (0, 2, 3):
        (folder / manifest.digest / part_name(number)).unlink()
    assert {batch.partition for batch in read(folder, 1)} == {1}
    with pytest.raises(SourceError, match=r"0000\.part cannot be read at byte 0 .* again"):
        read(folder, 0)


def test_a_second_cut_is_the_same_source_for_those_who_read_the_first(pipeline):
    folder, first = make(pipeline)
    (folder / "notes").mkdir()
    before = dict(source_of(folder).fingerprint)
    reader = source_of(folder).open({}, 4, 5)
    taken = [*reader.read()]
    damaged = folder / first.digest / part_name(3)
    damaged.write_bytes(damaged.read_bytes()[:-9])
    _, second = make(pipeline)
    assert first == second
    assert events_of([*taken, *read_out(reader)]) == list(range(50))
    assert sorted(each.name for each in folder.iterdir()) == sorted(
        ["LOCK", MANIFEST, "notes", second.digest]
    )
    source_of(folder).check_fingerprint(before)
    (folder.parent / "shop.jsonl").write_text(line(1) + "\n")
    _, third = make(pipeline)
    assert not (folder / first.digest).exists()
    assert third.parts != first.parts
    with pytest.raises(SourceChangedError, match="other events"):
        source_of(folder).check_fingerprint(before)
    with pytest.raises(SourceChangedError, match="it is in parts now, but was events"):
        source_of(folder).check_fingerprint({"format": "events"})


def test_a_full_disk_leaves_what_was_there(pipeline, monkeypatch):
    folder, manifest = make(pipeline)

    def full(_folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(cutting, "sync_folder", full)
    with pytest.raises(StoreFullError, match="is full: free some space, or name another folder"):
        make(pipeline)
    monkeypatch.undo()
    assert Manifest.read(FolderObjects(folder)) == manifest
    assert len([*folder.iterdir()]) == 3
    assert len(events_of(read(folder))) == 50


def test_one_cut_at_a_time_writes_to_a_folder(pipeline, monkeypatch):
    folder, _ = make(pipeline)
    monkeypatch.setattr(cutting, "try_lock", lambda _lock: False)
    with pytest.raises(StoreLockedError, match="another walle partition writes to"):
        make(pipeline)
    assert len(events_of(read(folder))) == 50


def test_a_folder_that_cannot_be_written_is_one_line(pipeline, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="cannot be written to"):
        make(pipeline, out=str(tmp_path / "file" / "parts"))


@pytest.mark.parametrize(
    "overrides", [["spec.source={connector: simulator}"], ["spec.source.path=shop.jsonl.parts"]]
)
def test_a_source_that_is_no_file_in_one_piece_is_refused(pipeline, overrides, monkeypatch):
    make(pipeline)
    monkeypatch.chdir(pipeline.parent)
    with pytest.raises(SpecFileError, match="no single file"):
        make(pipeline, *overrides)


def test_a_folder_without_a_manifest_is_not_taken_for_parts(pipeline):
    folder, _ = make(pipeline)
    (folder / MANIFEST).unlink()
    with pytest.raises(SourceNotFoundError, match="no complete parts: run walle partition again"):
        read(folder)
    (folder / MANIFEST).write_bytes(b"{")
    with pytest.raises(SourceError, match="damaged"):
        read(folder)


def test_another_layout_and_other_keys_are_refused(pipeline):
    folder, _ = make(pipeline)
    found = CONNECTOR.open(CONNECTOR.model.model_validate({"path": folder, "maxRecordBytes": 99}))
    with pytest.raises(SourceError, match="differs in more than its path"):
        found.open({}, 4, 100)
    path = folder / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"version":2', b'"version":3'))
    with pytest.raises(SourceError, match=r"manifest\.json has layout 3, not 2"):
        read(folder)


@pytest.mark.parametrize("place", [0, 4, 9, -1])
def test_an_altered_part_is_refused_where_it_is(pipeline, place):
    folder, manifest = make(pipeline)
    path = folder / manifest.digest / part_name(1)
    data = bytearray(path.read_bytes())
    data[place] ^= 255
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"0001\.part cannot be read at byte 0"):
        read(folder, 1)
    path.write_bytes(data[:-1])
    with pytest.raises(SourceError, match="run walle partition again"):
        read(folder, 1)


def test_a_part_is_not_taken_for_another(pipeline):
    folder, manifest = make(pipeline)
    paths = [folder / manifest.digest / part_name(number) for number in (1, 2)]
    first, second = (path.read_bytes() for path in paths)
    paths[0].write_bytes(second)
    paths[1].write_bytes(first)
    for number in (1, 2):
        with pytest.raises(SourceError, match=rf"000{number}\.part cannot be read at byte 0"):
            read(folder, number)


@pytest.mark.parametrize(("limit", "rows"), [(0, []), (3, [1, 1, 1, 0]), (20, [5, 5, 5, 5])])
def test_a_limit_is_shared_by_the_parts(pipeline, limit, rows):
    folder, manifest = make(pipeline)
    least = min(part.rows for part in manifest.parts)
    taken = [0, 0, 0, 0]
    for batch in read(folder, limit=limit):
        assert not batch.is_end
        taken[batch.partition] += batch.counts.source_rows
    assert least >= 5
    assert [count for count in taken if count] == [count for count in rows if count]


def test_what_waits_is_written_before_it_is_too_much(pipeline, monkeypatch):
    monkeypatch.setattr(cutting, "_WAITING_MAX_BYTES", 100)
    monkeypatch.setattr(cutting, "FRAME_EVENTS", 1)
    folder, _ = make(pipeline)
    assert events_of(read(folder)) == list(range(50))


def test_progress_and_unread_are_of_the_wanted_parts(pipeline):
    folder, manifest = make(pipeline)
    reader = source_of(folder).open({}, 4, 100, numbers=[2])
    part = manifest.parts[2]
    assert (reader.progress, reader.unread.rows) == (0.0, part.rows)
    assert reader.unread.size_bytes == part.size_bytes
    read_out(reader)
    assert (reader.progress, reader.unread.rows, reader.unread.size_bytes) == (1.0, 0, 0)


def test_a_source_that_breaks_leaves_nothing(tmp_path):
    (tmp_path / "e.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    keys = Keys(path=tmp_path / "parts")
    with pytest.raises(SourceError):
        cut(source_of(tmp_path / "e.jsonl.gz"), keys, keys.path, 4)
    with pytest.raises(SourceNotFoundError):
        read_out(PartedSource(keys, FolderObjects(keys.path)).open({}, 4, 100))


def test_the_file_in_one_piece_does_not_go_on_what_parts_began(pipeline, tmp_path):
    folder, _ = make(pipeline)
    stored = source_of(folder).fingerprint
    with pytest.raises(SourceChangedError, match="its format is events, but was parts before"):
        source_of(tmp_path / "shop.jsonl").check_fingerprint(stored)


def test_parts_are_cut_by_the_rule_of_the_pipeline(pipeline):
    tunnel = "spec.tunnel={connector: kafka, brokers: 'k:9092', topic: up, downTopic: down}"
    folder, manifest = make(pipeline, tunnel)
    assert manifest.placing == placing_mark(KAFKA.device_partition) != 0
    with pytest.raises(SourceError, match="by another rule"):
        read(folder)
    for batch in read_out(source_of(folder).open({}, 4, 9, None, KAFKA.device_partition)):
        for event in batch.events:
            assert KAFKA.device_partition(event.device_id, 4) == batch.partition
