"""Parts of a file in a real S3 server: one machine cuts, every other reads."""

import logging

import pytest

from tests.s3 import BUCKET
from tests.unit.app.test_cutting import events_of, line, make, pipeline, source_of
from walle_connectors.events import CONNECTOR
from walle_stream.errors import SourceError, SpecFileError, StoreError
from walle_stream.reading.parts import reader as parts
from walle_stream.store import buckets
from walle_stream.testing.source_log import read_out

__all__ = ["pipeline"]
pytestmark = pytest.mark.full
pytest.importorskip("obstore", reason="the extra `cluster` is not installed")


@pytest.fixture
def place(s3, monkeypatch, request):
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    return f"s3://{BUCKET}/{request.node.name}"


def test_what_was_cut_into_a_bucket_is_read_from_anywhere(s3, pipeline, tmp_path, place):
    with pytest.raises(SourceError, match=f"{place}' has no complete parts"):
        source_of(place).open({}, 4, 10)
    _, first = make(pipeline, out=place)
    source_of(place).check_fingerprint(source_of(make(pipeline)[0]).fingerprint)
    reader = source_of(place).open({}, 4, 3)
    taken = [*reader.read()]
    make(pipeline, out=place)  # for those who read it nothing changes
    assert events_of([*taken, *read_out(reader)]) == list(range(50))
    (tmp_path / "shop.jsonl").write_text("".join(line(n) + "\n" for n in range(20)))
    _, second = make(pipeline, out=place)
    assert events_of(read_out(source_of(place).open({}, 4, 10))) == list(range(20))
    left = {each.name for each in s3.path(place.rpartition("/")[2]).iterdir()}
    assert left == {"manifest.json", second.digest} != {"manifest.json", first.digest}


def test_parts_are_waited_for_while_the_store_is_away(s3, pipeline, place, monkeypatch, caplog):
    monkeypatch.setitem(buckets._RETRY, "retry_timeout", buckets.timedelta(seconds=1))
    monkeypatch.setattr(parts, "_BLOCK_MAX_BYTES", 2**16)
    (pipeline.parent / "shop.jsonl").write_text("".join(line(n) + "\n" for n in range(5_000)))
    make(pipeline, out=place)
    reader = source_of(place).open({}, 4, 100)
    s3.stop()
    with caplog.at_level(logging.WARNING):
        assert not reader.read()
        assert not reader.read()
        assert not reader.is_done
    assert [record.message.partition(":")[0] for record in caplog.records] == ["waiting for parts"]
    s3.start()
    assert events_of(read_out(reader)) == list(range(5_000))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AWS_ENDPOINT_URL", "127.0.0.1:7070", "AWS_ENDPOINT_URL is no URL"),
        ("AWS_ENDPOINT_URL", "", "AWS_ENDPOINT_URL is no URL"),
        ("AWS_ACCESS_KEY_ID", "nobody-else", "refuses these credentials"),
    ],
)
def test_a_wrong_environment_is_no_lack_of_parts(pipeline, place, monkeypatch, name, value, said):
    make(pipeline, out=place)
    monkeypatch.setenv(name, value)
    with pytest.raises((StoreError, SourceError), match=said):
        source_of(place).open({}, 4, 10)


def test_parts_that_are_gone_or_refused_are_said(s3, pipeline, place):
    _, manifest = make(pipeline, out=place)
    s3.path(f"{place.rpartition('/')[2]}/{manifest.digest}/0002.part").unlink()
    with pytest.raises(SourceError, match=r"0002\.part cannot be read at byte 0"):
        read_out(source_of(place).open({}, 4, 10))
    with pytest.raises(StoreError, match="there is no such bucket"):
        make(pipeline, out="s3://no-such-bucket/x")
    with pytest.raises(SpecFileError, match="give a folder, file:///FOLDER"):
        make(pipeline, out="ftp://a/b")
    with pytest.raises(ValueError, match="give a folder, file:///FOLDER"):
        CONNECTOR.model.model_validate({"path": "ftp://a/b"})
