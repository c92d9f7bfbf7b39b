"""What all readers share, shown with the toy of the conformance tests."""

import json

import pytest

from tests.conformance.toy_source import ClicksReader, ClicksSource
from walle_stream.errors import SourceChangedError, SourceError
from walle_stream.reading import reader as reader_module

LINES = b"".join(b"%c shop %d\n" % (97 + n % 2, n) for n in range(20))


@pytest.fixture
def opened(tmp_path):
    def make(offsets=None, batch_events=100, limit=None):
        (tmp_path / "clicks").write_bytes(LINES)
        return ClicksSource(tmp_path / "clicks").open(offsets or {}, 4, batch_events, limit)

    return make


def break_at(monkeypatch, row, error):
    go_on = ClicksReader._go_on

    def broken(reader):
        if reader._row == row:
            raise error
        return go_on(reader)

    monkeypatch.setattr(ClicksReader, "_go_on", broken)


def test_what_stands_before_a_failure_is_given_first(opened, monkeypatch):
    break_at(monkeypatch, 7, SourceError("damaged"))
    reader = opened()
    assert sum(len(batch.events) for batch in reader.read()) == 7
    for _ in range(2):
        with pytest.raises(SourceError, match="damaged"):
            reader.read()
    assert (reader.is_done, list(reader.drain())) == (False, [])


def test_a_source_that_is_another_one_gives_nothing(opened, monkeypatch):
    break_at(monkeypatch, 7, SourceChangedError("another"))
    reader = opened(batch_events=7)
    reader.read()
    with pytest.raises(SourceChangedError):
        reader.read()
    assert list(reader.drain()) == []


def test_partitions_without_rows_keep_up(opened, monkeypatch):
    monkeypatch.setattr(reader_module, "FLUSH_BYTES", 0)
    batches = opened(batch_events=5).read()
    assert {json.loads(batch.offset)["rows"] for batch in batches} == {1}
    assert sorted(batch.partition for batch in batches) == [0, 1, 2, 3]


def test_a_crash_point_is_passed_before_batches_are_handed_out(opened, monkeypatch):
    passed = []
    monkeypatch.setattr(reader_module, "crash_point", passed.append)
    reader, count = opened(batch_events=5), 0
    while not reader.is_done:
        count += bool(reader.read())
    assert passed == ["read.batch"] * count
    assert count >= 4


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ({0: b""}, "partition 0 is not one of a file of clicks"),
        ({1: b'{"v":1,"rows":1}'}, "partition 1 has layout 1, this version reads 2"),
        ({0: b'{"v":2,"rows":-1}'}, "not one of a file of clicks"),
        ({0: b'{"v":2,"row":1}'}, "not one of a file of clicks"),
        ({7: b'{"v":2,"rows":1}'}, "offsets of partitions [7]"),
        ({0: b"[" * 9_999}, "not one of a file of clicks"),
    ],
)
def test_an_offset_that_is_not_of_this_source_is_refused(opened, offsets, reason):
    with pytest.raises(SourceError) as caught:
        opened(offsets)
    assert reason in str(caught.value)
