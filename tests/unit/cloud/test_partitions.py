import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import numbers, record, stretch

from walle_stream.clock import monotonic_ms, unstopped_ms
from walle_stream.cloud.partitions import MOVING, Partitions, TableOptions
from walle_stream.store.objects import FolderObjects
from walle_stream.store.snapshots import PartitionSnapshots

MINUTE_MS = 60_000


@pytest.fixture
def begin(tmp_path):
    """Begin workers that reach the same snapshots."""
    made = []

    def begin(name, every_ms=0.0):
        options = TableOptions(
            keep=3,
            snapshots=partial(PartitionSnapshots, FolderObjects(tmp_path / "shots"), "shop"),
            snapshot_every_ms=every_ms,
        )
        made.append(Partitions(tmp_path / name, f"{name}:1", options))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def fill(worker, first, last):
    for number in range(first, last):
        worker.take(2, [stretch(record("d", number))], b"%d" % number, number)


def revoke(worker):
    worker.revoke([2], monotonic_ms() + MINUTE_MS)


def test_a_partition_that_moves_is_its_newest_snapshot(begin):
    one, two = begin("one"), begin("two")
    assert one.assign([2], 1) == {}
    fill(one, 1, 5)
    revoke(one)
    assert two.assign([2], 2) == {2: b"4"}
    fill(two, 5, 8)
    assert one.tables() == []
    revoke(two)
    # its own table is behind what the other left
    assert one.assign([2], 3) == {2: b"7"}
    assert numbers(one.tables()[0], "d")[:3] == [7, 6, 5]


def test_a_table_that_is_further_than_the_snapshot_stays(begin):
    one, two = begin("one"), begin("two", MINUTE_MS)
    one.assign([2], 1)
    fill(one, 1, 5)
    revoke(one)
    two.assign([2], 2)
    fill(two, 5, 8)
    two.lose([2])  # no snapshot
    assert two.assign([2], 3) == {2: b"7"}
    two.lose([2])
    assert one.assign([2], 4) == {2: b"4"}


def test_a_topic_that_began_anew_is_further_than_the_one_before(begin):
    one, two = begin("one"), begin("two")
    one.assign([2], 1)
    fill(one, 1, 9)
    revoke(one)
    one.assign([2], 2)
    one.take(2, [stretch(record("d", 9))], b"anew", 1)
    revoke(one)
    assert two.assign([2], 3) == {2: b"anew"}
    assert numbers(two.tables()[0], "d")[:3] == [9, 8, 7]


def test_nothing_is_known_before_a_table_has_all_and_the_lease_is_held(begin):
    worker = begin("one")
    assert worker.problem == MOVING
    worker.joined(is_member=True)
    assert worker.problem == ""  # it has none: the others are asked
    worker.assign([2], 1)
    worker.expect(2, 4, 9)
    assert (worker.problem, worker.ready) == (MOVING, set())
    worker.held_until(unstopped_ms() + MINUTE_MS)
    fill(worker, 1, 4)
    assert (worker.problem, worker.ready) == ("", set())
    assert worker.look_up("d")[1] is False
    fill(worker, 4, 5)
    assert (worker.ready, worker.look_up("d")[1], worker.look_up("e")) == ({2}, True, (None, True))
    assert worker.health()["partitions"] == {
        "2": {"is_ready": True, "is_behind": True, "next_offset": 4, "lag_records": 5}
    }
    worker.held_until(unstopped_ms() - 1)
    assert "has not answered this worker" in worker.problem
    worker.lose([2])
    assert (worker.look_up("d"), worker.problem) == ((None, True), "")
    worker.joined(is_member=False)  # a library may say so itself, when a broker is silent
    assert "has not answered this worker" in worker.problem
