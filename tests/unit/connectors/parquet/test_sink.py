import fcntl
from itertools import chain

import pyarrow.dataset as ds
import pytest

from walle_connectors.parquet import sink as sink_module
from walle_connectors.parquet.sink import ParquetSink
from walle_stream.errors import SinkError, WalleError
from walle_stream.ports import MergedFeature, Written
from walle_stream.testing.sink_suite import SinkSuite, merged_features


def read(folder):
    table = ds.dataset(folder, partitioning="hive").to_table()
    return [
        MergedFeature(**row | {"feature": row["feature"].encode()})
        for row in table.drop_columns(["lane"]).to_pylist()
    ]


@pytest.mark.parametrize("size", [100, 32_768])
class TestParquetSink(SinkSuite):
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path, monkeypatch, size):
        self.folder = tmp_path / "lake"
        monkeypatch.setattr(sink_module, "RANGE", size)
        monkeypatch.setattr(sink_module, "_CHUNK", 64)

    def open(self):
        return ParquetSink(self.folder, 0.0)

    def read(self):
        return read(self.folder)


def test_a_file_that_is_full_comes_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(sink_module, "RANGE", 10)
    sink = ParquetSink(tmp_path / "lake", 0.0)
    features = [each for each in merged_features(40, gap=1) if each.number >= 7]
    assert sink.write("a", iter(features[:2])) == Written(9, 7)
    assert sink.write("a", iter(features[:3])) == Written(10, 7)
    assert sink.write("a", iter(features)) == Written(10, 10)
    assert sink.write("a", (each for each in features if each.number > 25)) == Written(30, 30)
    names = sorted(path.name for path in (tmp_path / "lake/lane=a").glob("*.parquet"))
    assert names == [f"{0:020d}.parquet", f"{20:020d}.parquet"]


def test_two_processes_do_not_write_a_lane_at_once(tmp_path):
    sink, features = ParquetSink(tmp_path, 0.0), merged_features(3)
    sink.write("a", iter(features))
    with (tmp_path / "lane=a/.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SinkError, match="another worker"):
            sink.write("a", iter(features))
    sink.write("a", iter(features))


def test_a_failure_leaves_what_was_there(tmp_path):
    sink, features = ParquetSink(tmp_path, 0.0), merged_features(300)
    sink.write("a", iter(features[:200]))

    def broken():
        yield from features[:250]
        raise OSError("the disk is gone")

    with pytest.raises(SinkError):
        sink.write("a", broken())
    assert len(read(tmp_path)) == 200
    sink.write("a", chain(features))
    assert len(read(tmp_path)) == 300


def test_a_place_that_cannot_be_a_folder_is_said_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WalleError):
        ParquetSink(tmp_path / "file", 0.0)
