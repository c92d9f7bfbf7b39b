import sys
from contextlib import closing
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import INCARNATION, call, numbers, record, stretch

from walle_stream.cloud.heads import INCARNATIONS_MAX, chain_digest
from walle_stream.cloud.merging import Place
from walle_stream.cloud.partition_table import PartitionTable
from walle_stream.errors import StoreError
from walle_stream.ports import ReportFrame


@pytest.fixture
def table(tmp_path):
    made = PartitionTable(tmp_path / "t", 3)
    yield made
    made.close()


def test_features_and_the_place_are_there_after_reopening(table, tmp_path):
    made = [record("d", number) for number in (1, 2)]
    assert table.take([stretch(*made)], b"here", 7) == []
    table.close()
    again = PartitionTable(tmp_path / "t", 3)
    assert again.place == Place(0, 7, b"here")
    head, rows = again.look_up("d")
    assert [(generation, number) for generation, number, _ in rows] == [(0, 2), (0, 1)]
    assert rows[0][2].event_time_ms == 1_002
    assert (head.incarnations, head.last_numbers, head.counts) == ([INCARNATION], [2], [2])
    assert head.digests == [chain_digest(chain_digest(b"", made[0]), made[1])]
    assert (again.stats.features, again.stats.devices) == (2, 1)
    again.close()


def test_what_was_seen_is_dropped_and_gaps_are_counted(table):
    table.take([stretch(*(record("d", n) for n in (1, 2, 2, 1, 5)))], b"", 5)
    table.take([stretch(record("d", 3), record("d", 5))], b"", 7)
    assert numbers(table, "d") == [5, 2, 1]
    assert table.look_up("d").head.gaps == 1
    assert (table.stats.features, table.stats.duplicates_dropped, table.stats.gaps) == (3, 4, 1)


def test_the_latest_of_each_task_stay_and_all_are_counted(table):
    table.take([stretch(record("d", 1, "rare"))], b"", 1)
    for number in range(2, 200):
        table.take([stretch(record("d", number))], b"", number)
    assert numbers(table, "d")[:3] == [199, 198, 197]
    assert len(numbers(table, "d")) <= 3 + 8
    assert numbers(table, "d", "rare") == [1]
    assert table.look_up("d").head.counts == [199]
    # more than all of them in one batch
    table.take([stretch(*(record("d", n) for n in range(200, 300)))], b"", 300)
    assert numbers(table, "d")[:3] == [299, 298, 297]
    assert len(numbers(table, "d")) <= 3 + 8


def test_an_older_owner_is_refused_also_after_reopening(table, tmp_path):
    assert table.take([stretch(record("d", 1), epoch=5)], b"", 1) == []
    [problem] = table.take([stretch(record("d", 2), epoch=4), stretch(epoch=5)], b"", 2)
    assert "epoch 4 of partition 2 is over, 5 was seen" in problem
    assert numbers(table, "d") == [1]
    table.close()
    again = PartitionTable(tmp_path / "t", 3)
    assert len(again.take([stretch(record("d", 2), record("e", 1), epoch=4)], b"", 4)) == 1
    assert again.stats.frames_refused == 3
    # another incarnation has epochs of its own
    assert again.take([stretch(record("d", 1), incarnation="cd" * 8)], b"", 5) == []
    again.close()


def test_a_device_has_so_many_incarnations(table):
    made = [stretch(record("d", 1), incarnation=f"{each:016x}") for each in range(INCARNATIONS_MAX)]
    assert table.take(made, b"", 1) == []
    [problem] = table.take([stretch(record("d", 1), incarnation="f" * 16)], b"", 2)
    assert "exceeds the limit of 1000 per device" in problem
    assert table.take([stretch(record("d", 2), incarnation=f"{0:016x}")], b"", 3) == []
    assert table.stats.features == INCARNATIONS_MAX + 1


def test_a_place_that_goes_back_began_anew(table):
    for next_offset in (5, 9, 2, 4):
        table.take((), b"", next_offset)
    assert table.place == Place(1, 4, b"")


def test_calls_are_counted_and_take_no_number(table):
    table.take([stretch(calls=[call("d", 1)], numbers=[0]), stretch(record("d", 1))], b"", 2)
    assert (table.stats.calls, numbers(table, "d")) == (1, [1])


def test_calls_wait_with_the_place_until_they_are_closed(tmp_path):
    path = tmp_path / "calls"
    with closing(PartitionTable(path, 3, keeps_calls=True)) as table:
        for next_offset, made in ((1, [call("d", 1)]), (3, [call("d", 2), call("e", 1)])):
            first = next_offset - len(made)
            table.take([stretch(calls=made, numbers=range(first, next_offset))], b"", next_offset)
        assert [(number, each.call) for number, each in table.open_calls(0, 9)] == [
            (1, call("d", 1)),
            (2, call("d", 2)),
            (3, call("e", 1)),
        ]
        assert (len(table.open_calls(1, 1)), table.last_call) == (1, 3)
        table.close_call(2)
        table.take([stretch(calls=[call("f", 1)], numbers=[0])], b"", 1)  # the topic began anew
    with closing(PartitionTable(path, 3, keeps_calls=True)) as table:
        numbers = [number for number, _ in table.open_calls(0, 9)]
        assert numbers[:2] == [1, 3]
        assert numbers[2:] == [table.last_call] == [2**48 + 1]


def test_calls_of_an_older_owner_are_refused(tmp_path):
    with closing(PartitionTable(tmp_path / "fenced", 3, keeps_calls=True)) as table:
        table.take([stretch(epoch=2, calls=[call("d", 1)], numbers=[0])], b"", 1)
        [problem] = table.take([stretch(epoch=1, calls=[call("d", 2)], numbers=[1])], b"", 2)
        assert "epoch 1 of partition 2 is over" in problem
        assert (len(table.open_calls(0, 9)), table.stats.frames_refused) == (1, 1)


def test_nobody_looks_up_in_a_table_that_was_closed(table):
    table.take([stretch(record("d", 1))], b"", 1)
    assert table.look_up("nobody") is None
    table.close()
    with pytest.raises(StoreError):
        table.look_up("d")


def reports(*given, size=1):
    frames = [ReportFrame(INCARNATION, 2, number, bytes(size)) for number in given]
    return stretch(reports=frames)


def waiting(table):
    return [frame.number for _, frame in table.first_reports(2**30)]


def test_reports_wait_with_the_place_until_they_are_forgotten(tmp_path):
    table = PartitionTable(tmp_path / "t", 3, keeps_reports=True)
    table.take([reports(1, 2), reports(3)], b"", 3)
    table.close()
    table = PartitionTable(tmp_path / "t", 3, keeps_reports=True)
    assert waiting(table) == [1, 2, 3]
    part = table.first_reports(2)
    table.forget_reports(part)
    table.take([reports(4)], b"", 4)
    table.forget_reports(part)  # once more changes nothing
    table.close()
    table = PartitionTable(tmp_path / "t", 3, keeps_reports=True)
    assert (waiting(table), table.stats.frames) == ([3, 4], 4)
    table.close()


def test_reports_without_room_go_the_oldest_first(tmp_path):
    table = PartitionTable(tmp_path / "t", 3, keeps_reports=True)
    part = table.first_reports(1)
    for number in range(6):
        table.take([reports(number, size=4 * 2**20)], b"", number)
    assert (waiting(table), table.report_counts) == ([2, 3, 4, 5], (4, 2))
    part = table.first_reports(1)
    table.forget_reports(part)
    assert waiting(table) == [3, 4, 5]
    table.close()


def test_reports_that_nobody_takes_are_only_counted(table):
    table.take([reports(1)], b"", 1)
    assert (waiting(table), table.stats.frames) == ([], 1)
