"""Messages down from a log that may be replaced by another one."""

import pytest

from walle_stream.actors.exchange import CloudExchange
from walle_stream.wire.envelope import DownlinkEnvelope, encode_downlink
from walle_stream.wire.rows import PartitionHead


class Rows:
    def __init__(self):
        self.messages = []

    def put_message(self, device_id, number, _message):
        self.messages.append((device_id, number))


class Down:
    """A log that names itself."""

    def __init__(self, log_id, count):
        self.log_id, self.count = log_id, count

    def receive(self, _partition, position, _max_bytes):
        return [
            (n + 1, encode_downlink(DownlinkEnvelope(self.log_id, n + 1, "i", "note", b"{}")))
            for n in range(position, self.count)
        ]


class Anonymous(Down):
    """One that does not."""

    def __init__(self, count):
        self._count = count

    def receive(self, partition, position, max_bytes):
        return Down("old", self._count).receive(partition, position, max_bytes)


@pytest.fixture
def rows():
    return Rows()


def test_another_log_is_read_from_its_beginning(rows, caplog):
    down, head = Down("a", 3), PartitionHead()
    exchange = CloudExchange(0, rows, down, "incarnation")
    exchange.take(head, ())
    assert (head.downlink_log, head.downlink_position) == ("a", 3)
    down.log_id, down.count = "b", 5
    for _ in range(2):
        exchange.take(head, ())
    assert (head.downlink_log, head.downlink_position) == ("b", 5)
    assert rows.messages == [("a", n) for n in (1, 2, 3)] + [("b", n) for n in (1, 2, 3, 4, 5)]
    assert "was made anew" in caplog.text


def test_one_that_is_only_passed_over_is_left_behind_too(rows):
    down, head = Down("a", 3), PartitionHead()
    exchange = CloudExchange(0, rows, down, "incarnation", only_device="b")
    exchange.take(head, ())
    down.log_id, down.count = "b", 2
    for _ in range(2):
        exchange.take(head, ())
    assert rows.messages == [("b", 1), ("b", 2)]


def test_positions_of_before_logs_had_names_are_read_on(rows, caplog):
    head = PartitionHead(downlink_position=2)
    CloudExchange(0, rows, Down("a", 3), "incarnation").take(head, ())
    assert (head.downlink_log, head.downlink_position) == ("a", 3)
    CloudExchange(0, rows, Anonymous(4), "incarnation").take(head, ())
    assert (head.downlink_log, head.downlink_position) == ("a", 4)
    assert rows.messages == [("a", 3), ("old", 4)]
    assert not caplog.records
