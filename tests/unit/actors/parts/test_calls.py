"""Messages down from a log that may be replaced by another one."""

from types import SimpleNamespace

import msgspec
import pytest

from walle_stream.actors.parts.calls import Calls
from walle_stream.actors.turns.turn import Turn
from walle_stream.ports import InstalledTask
from walle_stream.wire.envelope import DownlinkEnvelope, encode_downlink
from walle_stream.wire.message_payload import MESSAGE_KIND, MessagePayload, encode_payload
from walle_stream.wire.rows import PartitionHead


class Rows:
    """What a partition stores of messages: nothing here."""

    def __init__(self):
        self.batch = SimpleNamespace(put=lambda *_: None)

    def scan(self, _prefix):
        return []

    def wake(self, _machine, _device_ids):
        pass


class Everybody:
    """All devices there are, with one task that takes messages."""

    watermark_ms = -1

    def is_active(self, _device_id):
        return True

    def task_set(self, _device_id):
        return ""

    def tasks(self, _set_id):
        return {"t": InstalledTask("1", (("x",),), "t", takes_messages=True)}


def message(device_id, number, sender):
    payload = encode_payload(MessagePayload(msgspec.Raw(b"1")))
    return DownlinkEnvelope(device_id, MESSAGE_KIND, payload, sender, number)


class Down:
    """A log that names itself."""

    def __init__(self, log_id, count):
        self.log_id, self.count = log_id, count

    def receive(self, _partition, position, _max_bytes):
        return [
            (n + 1, encode_downlink(message(self.log_id, n + 1, self.log_id)))
            for n in range(position, self.count)
        ]

    def is_behind(self, _partition):
        return False


class Anonymous(Down):
    """One that does not."""

    def __init__(self, count):
        self._count = count

    def receive(self, partition, position, max_bytes):
        return Down("old", self._count).receive(partition, position, max_bytes)


def looking(rows, down, *, number=0, only="", tasks=()):
    """How an opened partition takes down what came into a turn."""
    calls = Calls(down)
    everybody = Everybody()
    everybody.names = tasks
    parts = {"rows": rows, "sets": everybody, "machine": everybody, "incarnation": "ab" * 8}
    plan = SimpleNamespace(only_device=only)
    calls.restart(SimpleNamespace(number=number, plan=plan, **parts))
    return calls.idle


def taking(rows, down, **given):
    """Return a function: a head to the replies that an opened partition takes."""
    look = looking(rows, down, **given)

    def take(head):
        turn = Turn(head, None, -1)
        look(turn)
        return turn.told

    return take


def named(told):
    """The device and the sender's number of each message."""
    return [(each.device_id, each.given[1]) for each in told]


@pytest.fixture
def rows():
    return Rows()


def test_another_log_is_read_from_its_beginning(rows, caplog):
    down, head = Down("a", 3), PartitionHead()
    take = taking(rows, down)
    told = take(head)
    assert (head.downlink_log, head.downlink_position) == ("a", 3)
    down.log_id, down.count = "b", 5
    for _ in range(2):
        told += take(head)
    assert (head.downlink_log, head.downlink_position) == ("b", 5)
    assert named(told) == [("a", n) for n in (1, 2, 3)] + [("b", n) for n in (1, 2, 3, 4, 5)]
    assert "was made anew" in caplog.text


def test_another_log_is_worth_a_commit_of_its_own(rows, caplog):
    down, head = Down("b", 5), PartitionHead(downlink_log="a", downlink_position=3)
    look, told = looking(rows, down), []
    for _ in range(3):  # as a host that reads nothing: what is not worth a commit is dropped
        turn = Turn(head.copied(), None, -1)
        head = turn.head if look(turn) else head
        told += turn.told
    assert (head.downlink_log, head.downlink_position) == ("b", 5)
    assert (len(told), len(caplog.records)) == (5, 1)


def test_one_that_is_only_passed_over_is_left_behind_too(rows):
    down, head = Down("a", 3), PartitionHead()
    take = taking(rows, down, only="b")
    assert take(head) == []
    down.log_id, down.count = "b", 2
    told = [each for _ in range(2) for each in take(head)]
    assert named(told) == [("b", 1), ("b", 2)]


def test_positions_of_before_logs_had_names_are_read_on(rows, caplog):
    head = PartitionHead(downlink_position=2)
    told = taking(rows, Down("a", 3))(head)
    assert (head.downlink_log, head.downlink_position) == ("a", 3)
    told += taking(rows, Anonymous(4))(head)
    assert (head.downlink_log, head.downlink_position) == ("a", 4)
    assert named(told) == [("a", 3), ("old", 4)]
    assert not caplog.records
