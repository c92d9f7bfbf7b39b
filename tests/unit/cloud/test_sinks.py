"""What the tables keep for sinks, and how it gets there."""

import logging
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import INCARNATION, frame, record, stretch

from walle_stream.cloud import sink_log
from walle_stream.cloud.own_table import OwnTable
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.cloud.sink_pump import SinkPump
from walle_stream.errors import SinkError, StoreError
from walle_stream.ports import Written
from walle_stream.store.partition import PartitionStore


class Sink:
    """Takes features in parts of ``size`` numbers, whole or not; ``fails`` is asked before."""

    pause_s = 0.0

    def __init__(self, size=1, fails=lambda: None):
        self.size, self.fails = size, fails
        self.got, self.calls = {}, 0
        self.is_closed = False

    def write(self, lane, features):
        self.calls += 1
        self.fails()
        first, of_part = None, []
        for each in features:
            first = each.number if first is None else first
            end = first // self.size * self.size + self.size
            if each.number >= end:
                self.got.setdefault(lane, {}).update((it.number, it) for it in of_part)
                return Written(end, end)
            of_part.append(each)
        self.got.setdefault(lane, {}).update((it.number, it) for it in of_part)
        behind = of_part[-1].number + 1
        return Written(behind, behind if behind == end else first)

    def close(self):
        self.is_closed = True


def opened(path):
    store = PartitionStore.open(path)
    store.tenant = OwnTable(store)
    return store.tenant


def shut(table):
    """Close its partition, so that others can open it."""
    table.partition.close()


def waiting(store, name):
    return [
        (each.number, each.device_id, each.sequence_number) for each in store.sink_log.rows(name)
    ]


def test_what_is_merged_waits_until_every_sink_has_it(tmp_path):
    store = opened(tmp_path / "c")
    store.merge([frame(("z", 1))])  # nobody was there yet
    store.serve_sinks(["a", "b"], "lane")
    store.merge([frame(("d", 1), ("d", 2)), frame(("d", 2), ("e", 1))])
    rows = [(0, "d", 1), (1, "d", 2), (2, "e", 1)]
    assert waiting(store, "a") == waiting(store, "b") == rows
    store.sink_log.move("a", 2)
    assert (waiting(store, "a"), waiting(store, "b")) == (rows[2:], rows)
    shut(store)
    store = opened(tmp_path / "c")
    store.serve_sinks(["a", "b"], "lane")
    assert (waiting(store, "a"), waiting(store, "b")) == (rows[2:], rows)
    store.sink_log.move("a", 3)
    store.sink_log.move("b", 3)
    assert waiting(store, "a") == waiting(store, "b") == []
    shut(store)
    # numbers go on where nothing waits, and whoever is new
    store = opened(tmp_path / "c")
    store.serve_sinks(["c"], "lane")
    assert store.sink_log.end == 3
    store.merge([frame(("f", 1))])
    assert waiting(store, "c") == [(3, "f", 1)]
    shut(store)


def test_numbers_of_a_partition_are_its_offsets(tmp_path):
    table = PartitionTable(tmp_path / "t", 3)
    table.serve_sinks(["a"], "partition-0002")
    table.take([stretch(record("d", 1), record("d", 1), record("d", 2), numbers=[5, 7, 8])], b"", 9)
    assert waiting(table, "a") == [(5, "d", 1), (8, "d", 2)]
    table.sink_log.move("a", 9)
    # the topic began anew: numbers go on
    table.take([stretch(record("d", 3), numbers=[0])], b"", 1)
    table.take([stretch(record("d", 4), numbers=[3])], b"", 4)
    [(third, *_), (fourth, *_)] = waiting(table, "a")
    assert 9 < third == fourth - 3
    table.close()


def test_a_table_can_be_closed_while_a_sink_flushes_it(tmp_path):
    for turn in range(10):
        table = PartitionTable(tmp_path / f"{turn}", 3)
        table.serve_sinks(["a"], "lane")
        table.take([stretch(record("d", 1), numbers=[5])], b"", 6)
        flushed, ended = threading.Event(), threading.Event()

        def flush(table=table, flushed=flushed, ended=ended):
            try:
                while True:
                    table.sink_log.sync()
                    flushed.set()
            except StoreError:
                ended.set()

        thread = threading.Thread(target=flush, daemon=True)
        thread.start()
        assert flushed.wait(10)
        table.close()
        thread.join(10)
        assert ended.is_set()


def test_a_table_can_be_closed_while_a_sink_writes_what_it_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sink_log, "_PART_BYTES", 100)
    path = tmp_path / "t"
    table = PartitionTable(path, 100)
    table.serve_sinks(["a"], "lane")
    records = [record("d", number) for number in range(1, 31)]
    table.take([stretch(*records, numbers=range(30))], b"", 30)
    rows = table.sink_log.rows("a")
    first = next(rows)
    table.close()
    again = PartitionTable(path, 100)
    again.serve_sinks(["a"], "lane")
    with pytest.raises(StoreError):
        list(rows)
    assert [each.number for each in again.sink_log.rows("a")] == list(range(30))
    assert first.number == 0
    again.close()


@pytest.fixture
def pumped(tmp_path):
    made = []

    def pump(sink, *names, tables=None):
        store = opened(tmp_path / f"c{len(made)}")
        store.serve_sinks(names or ["s"], "lane")
        made.append((store, SinkPump("s", sink, tables or (lambda: [store]), 0.001)))
        return made[-1]

    yield pump
    for store, running in made:
        running.close()
        shut(store)


@pytest.mark.parametrize("size", [1, 10, 1_000])
def test_a_pump_hands_over_all_there_is_before_it_ends(pumped, size):
    sink = Sink(size)
    store, pump = pumped(sink)
    for number in range(1, 60):
        store.merge([frame(("d", 2 * number - 1), ("d", 2 * number))])
    pump.close()
    found = [sink.got["lane"][number] for number in range(118)]
    assert [each.sequence_number for each in found] == list(range(1, 119))
    assert {each.incarnation for each in found} == {INCARNATION}
    assert (pump.lag, sink.is_closed) == (0, True)
    # what is not whole comes again
    assert store.sink_log.places["s"] == 118 // size * size


def test_a_sink_that_is_away_delays_nobody_and_is_tried_again(pumped, caplog):
    tries = threading.Event()
    sink = Sink()

    def fails():
        if sink.calls < 5:
            raise SinkError("it is away") if sink.calls % 2 else ValueError("it has a bug")
        tries.set()

    sink.fails = fails
    with caplog.at_level(logging.WARNING):
        store, pump = pumped(sink)
        store.merge([frame(("d", 1))])
        assert tries.wait(10.0)
        pump.close()
    assert [each.sequence_number for each in sink.got["lane"].values()] == [1]
    said = [each.getMessage() for each in caplog.records]
    assert [text for text in said if "it is away" in text and "'s'" in text]
    assert [text for text in said if "it has a bug" in text]


def test_what_a_sink_does_not_take_by_the_end_waits_for_the_next_run(pumped, caplog):
    def away():
        raise SinkError("it is away")

    store, pump = pumped(Sink(fails=away))
    store.merge([frame(("d", 1), ("d", 2))])
    with caplog.at_level(logging.WARNING):
        pump.close()
    assert "2 features wait (it is away)" in caplog.text
    sink = Sink()
    SinkPump("s", sink, lambda: [store]).close()
    assert [each.sequence_number for each in sink.got["lane"].values()] == [1, 2]


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_table_that_is_given_away_is_passed_over(pumped, tmp_path, caplog, is_wrapped):
    gone = PartitionTable(tmp_path / "gone", 3)
    gone.serve_sinks(["s"], "gone")
    gone.take([stretch(record("d", 1), numbers=[5])], b"", 6)
    tables = [gone]

    class Slow(Sink):
        def write(self, lane, features):
            if lane == "gone" and tables[0] is gone:
                del tables[0]  # a rebalance, as ``Partitions`` does it
                gone.close()
            try:
                return super().write(lane, features)
            except StoreError as error:
                raise (SinkError(f"topic 't': {error}") if is_wrapped else error) from error

    sink = Slow()
    with caplog.at_level(logging.WARNING):
        store, pump = pumped(sink, tables=lambda: list(tables))
        tables.append(store)
        store.merge([frame(("d", 1))])
        pump.close()
    assert list(sink.got) == ["lane"]
    assert caplog.messages == []


def test_a_part_that_is_not_whole_waits_for_its_time(pumped):
    sink = Sink(size=10)
    sink.pause_s = 3_600.0
    store, pump = pumped(sink)
    store.merge([frame(("d", 1))])
    while not sink.got:
        threading.Event().wait(0.001)
    store.merge([frame(("d", 2))])
    assert pump.lag == 1
    pump.close()
    assert [each.sequence_number for each in sink.got["lane"].values()] == [1, 2]
    assert sink.calls == 2


def test_a_lane_whose_feature_is_refused_for_ever_delays_no_other(tmp_path):
    stores = []
    for name in ("bad", "good"):
        stores.append(opened(tmp_path / name))
        stores[-1].serve_sinks(["s"], name)
        stores[-1].merge([frame(("d", 1))])
    got = threading.Event()

    class Picky(Sink):
        def write(self, lane, features):
            if lane == "bad":
                raise SinkError("it is too large")
            got.set()
            return super().write(lane, features)

    pump = SinkPump("s", Picky(), lambda: stores, 0.001)
    assert got.wait(10.0)
    pump.close()
    assert pump.lag == 1
    for store in stores:
        shut(store)
