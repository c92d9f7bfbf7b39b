"""Whether every record of a topic is given to a worker."""

import pytest

from walle_connectors.faust.continuity import ReadOrder
from walle_stream.errors import CloudStalledError


def test_records_in_order_and_again_are_taken():
    order = ReadOrder("t")
    assert all(order.takes(0, offset, 0) for offset in (0, 1, 2, 1, 2, 3))
    assert order.takes(1, 7, 7)


def test_a_partition_that_comes_back_goes_on_where_the_group_is():
    order = ReadOrder("t")
    assert order.takes(0, 0, 0)
    assert order.takes(0, 40, 40)


@pytest.mark.parametrize("committed", [None, 0, 3])
def test_records_that_are_passed_over_are_noticed(committed):
    order = ReadOrder("t")
    assert order.takes(0, 0, 0)
    assert order.takes(0, 1, committed)
    assert not order.takes(0, 5, committed)
    with pytest.raises(CloudStalledError, match="before offset 5 of partition 0 of topic 't'"):
        order.expect(0, 5, 0)


def test_the_first_of_a_new_group_is_the_first_there_is():
    order = ReadOrder("t")
    assert not order.takes(0, 0, None)
    order.expect(0, 0, 0)
    assert order.takes(0, 1, None)
    other = ReadOrder("t")
    assert not other.takes(0, 9, None)
    with pytest.raises(CloudStalledError):
        other.expect(0, 9, 2)


def test_what_retention_deleted_is_not_waited_for():
    order = ReadOrder("t")
    assert not order.takes(0, 9, 4)
    order.expect(0, 9, 9)
    assert order.takes(0, 10, 4)
