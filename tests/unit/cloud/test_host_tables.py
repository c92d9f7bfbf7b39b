"""The tunnel whose cloud side is where the partitions are."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made import INCARNATION, frame

from walle_stream.cloud.host_tables import HostTables, Replies
from walle_stream.store.partition import PartitionStore


@pytest.fixture
def tables():
    return HostTables()


@pytest.fixture
def opened(tables, tmp_path):
    stores = []

    def open_one(number):
        stores.append(PartitionStore.open(tmp_path / f"{number}"))
        tables.open(number, stores[-1], INCARNATION)
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


def sent(number, *records, partition):
    return partition, number, frame(*records, partition=partition, number=number)


def test_frames_are_merged_where_their_partition_is_and_acknowledged(tables, opened):
    for number in (1, 2):
        opened(number)
    frames = [sent(1, ("a", 1), partition=1), sent(1, ("b", 1), partition=2)]
    tables.send([*frames, sent(2, ("a", 2), partition=1), sent(1, ("x", 1), partition=3)])
    assert [list(tables.acks(number)) for number in (1, 2, 3, 1)] == [[1, 2], [1], [], []]
    assert {number: each.features for number, each in tables.counts.items()} == {1: 2, 2: 1}


def test_a_partition_that_closes_takes_its_table_along_and_its_counts_stay(tables, opened):
    store = opened(1)
    [table] = tables.tables()
    tables.send([sent(1, ("a", 1), partition=1)])
    store.close()
    assert (tables.tables(), tables.counts[1].features) == ([], 1)
    tables.send([sent(2, ("a", 2), partition=1)])  # it stays in the outbox
    assert list(tables.acks(1)) == [1]
    opened(1)
    assert tables.tables() != [table]


def test_opening_it_again_does_not_lose_the_new_table(tables, opened):
    first = opened(1)
    first.tenant = None  # as if it closed behind the next opening
    late = tables.tables()[0].leave
    first.close()
    opened(1)
    [table] = tables.tables()
    late()
    assert tables.tables() == [table]


def test_replies_go_down_and_those_of_a_closed_partition_are_dropped(tables, opened):
    store, replies = opened(1), Replies(tables)
    replies.send([(1, 7, b"one"), (2, 8, b"two")])
    assert [list(replies.acks(number)) for number in (1, 2, 1)] == [[7], [8], []]
    assert tables.receive(1, 0, 100) == [(1, b"one")]
    tables.release(1, 1)
    store.close()
    replies.send([(1, 9, b"three")])
    assert list(replies.acks(1)) == [9]
