"""Messages down from a log that may be replaced by another one."""

from types import SimpleNamespace

import pytest

from walle_stream.actors.parts.calls import Calls
from walle_stream.actors.turns.turn import Turn
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
            (n + 1, encode_downlink(DownlinkEnvelope(self.log_id, "note", b"{}", "i", n + 1)))
            for n in range(position, self.count)
        ]


class Anonymous(Down):
    """One that does not."""

    def __init__(self, count):
        self._count = count

    def receive(self, partition, position, max_bytes):
        return Down("old", self._count).receive(partition, position, max_bytes)


def looking(rows, down, *, number=0, only="", tasks=()):
    """How an opened partition takes down what came into a turn."""
    calls = Calls(down)
    plan, sets = SimpleNamespace(only_device=only), SimpleNamespace(names=tasks)
    calls.restart(
        SimpleNamespace(number=number, rows=rows, plan=plan, sets=sets, incarnation="ab" * 8)
    )
    return calls.idle


def taking(rows, down, **given):
    """What an opened partition takes down with a head; returns the replies."""
    look = looking(rows, down, **given)

    def take(head):
        turn = Turn(head, None, -1)
        look(turn)
        return turn.replies

    return take


@pytest.fixture
def rows():
    return Rows()


def test_another_log_is_read_from_its_beginning(rows, caplog):
    down, head = Down("a", 3), PartitionHead()
    take = taking(rows, down)
    take(head)
    assert (head.downlink_log, head.downlink_position) == ("a", 3)
    down.log_id, down.count = "b", 5
    for _ in range(2):
        take(head)
    assert (head.downlink_log, head.downlink_position) == ("b", 5)
    assert rows.messages == [("a", n) for n in (1, 2, 3)] + [("b", n) for n in (1, 2, 3, 4, 5)]
    assert "was made anew" in caplog.text


def test_another_log_is_worth_a_commit_of_its_own(rows, caplog):
    down, head = Down("b", 5), PartitionHead(downlink_log="a", downlink_position=3)
    look = looking(rows, down)
    for _ in range(3):  # as a host that reads nothing: what is not worth a commit is dropped
        turn = Turn(head.copied(), None, -1)
        head = turn.head if look(turn) else head
    assert (head.downlink_log, head.downlink_position) == ("b", 5)
    assert (len(rows.messages), len(caplog.records)) == (5, 1)


def test_one_that_is_only_passed_over_is_left_behind_too(rows):
    down, head = Down("a", 3), PartitionHead()
    take = taking(rows, down, only="b")
    take(head)
    down.log_id, down.count = "b", 2
    for _ in range(2):
        take(head)
    assert rows.messages == [("b", 1), ("b", 2)]


def test_positions_of_before_logs_had_names_are_read_on(rows, caplog):
    head = PartitionHead(downlink_position=2)
    taking(rows, Down("a", 3))(head)
    assert (head.downlink_log, head.downlink_position) == ("a", 3)
    taking(rows, Anonymous(4))(head)
    assert (head.downlink_log, head.downlink_position) == ("a", 4)
    assert rows.messages == [("a", 3), ("old", 4)]
    assert not caplog.records
