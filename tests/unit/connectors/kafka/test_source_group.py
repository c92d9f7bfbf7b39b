"""What a group keeps of a partition, and librdkafka's callbacks through a stand-in; no broker."""

from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra `confluent` is missing")

from walle_connectors.kafka import KafkaSourceModel  # noqa: E402 - behind the extra
from walle_connectors.kafka.source import confluent, confluent_group  # noqa: E402 - same
from walle_connectors.kafka.source.confluent_group import ConfluentGroup  # noqa: E402 - same
from walle_connectors.kafka.source.group import Told  # noqa: E402 - same

LONG_S = 30
TopicPartition = confluent_kafka.TopicPartition


@given(
    st.integers(0, 2**31),
    st.text(st.characters(codec="ascii", exclude_characters="\0")),
    st.sampled_from(["", "\0"]),
)
def test_what_was_told_is_read_again_whichever_library_told_it(generation, owner, end):
    told = Told(7, generation, owner)
    assert Told.read(7, told.metadata + end) == told


@pytest.mark.parametrize("metadata", [None, "", "-3", "some tool", "\N{SUPERSCRIPT TWO} x"])
def test_what_is_not_ours_has_no_generation(metadata):
    assert Told.read(7, metadata)[:2] == (7, 0)


class Consumer:
    def __init__(self, settings):
        self.settings, self.member, self.served, self.told = settings, "m-1", [], []

    def subscribe(self, _topics, **callbacks):
        self.callbacks = callbacks

    def memberid(self):
        return self.member

    def poll(self, _timeout):
        while self.served:
            what, numbers = self.served.pop(0)
            self.callbacks[what](self, [TopicPartition("t", number) for number in numbers])

    def consume(self, _most, _timeout):
        return []

    def assign(self, places):
        pass

    incremental_assign = incremental_unassign = pause = assign

    def commit(self, offsets, *, asynchronous):
        self.told.append([(each.partition, each.offset, each.metadata) for each in offsets])
        return None if asynchronous else offsets

    def close(self):
        pass


@pytest.fixture
def made(monkeypatch):
    for module in (confluent, confluent_group):
        monkeypatch.setattr(module, "Consumer", Consumer)
    keys = {"brokers": "h:1", "topic": "t", "group": "g", "driver": "confluent"}
    groups = []

    def make(**more):
        group = ConfluentGroup(KafkaSourceModel.model_validate(keys | more), has_headers=False)
        group.given = []
        group.join(lambda numbers, *, is_lost: group.given.append((sorted(numbers), is_lost)))
        groups.append(group)
        group._consumer.served.append(("on_assign", [0, 1, 2, 3]))
        assert group.take(LONG_S)
        group.poll(1)
        group.give()
        assert (group.is_member, group.owned) == (True, {0, 1, 2, 3})
        return group

    yield make
    for each in groups:
        each.leave(gives_back=False)


def test_partitions_are_given_back_within_the_poll_that_asks_for_them(made):
    group = made()
    group._consumer.served.append(("on_revoke", [1, 2]))
    group.poll(1)
    assert (group.given, group.owned) == ([([1, 2], False)], {0, 3})
    group._consumer.member = "m-2"  # out, and on the way back
    group._consumer.served.append(("on_revoke", [0]))
    group.poll(1)
    assert (group.given[1:], group.owned, group.is_member) == ([([0, 3], True)], set(), False)


def test_a_stand_in_that_is_asked_waits_for_its_reader(made, monkeypatch):
    monkeypatch.setattr(confluent_group, "STAND_IN_SHARE", 1e-6)
    group = made()
    group._consumer.served.append(("on_revoke", [1]))
    is_waiting = Event()
    wait = group._is_wanted.wait
    monkeypatch.setattr(group._is_wanted, "wait", lambda: is_waiting.set() or wait())
    assert is_waiting.wait(LONG_S)
    assert group.given == []
    for _ in range(LONG_S * 100):
        if group.take(0.01):
            break
    group.give()
    assert (group.given, group.owned) == ([([1], False)], {0, 2, 3})


def test_one_answer_that_somebody_waits_for_is_under_way_at_a_time(made):
    group, taken = made(), []
    told = {0: Told(5, 2, "here")}
    for number in (1, 2):
        group.tell(told, lambda number=number: taken.append(number))
    assert group._consumer.told == [[(0, 5, "2 here")]]
    group._consumer.settings["on_commit"](None, [TopicPartition("t", 0)])
    assert taken == [1]
    group.tell(told, lambda: taken.append(3))
    group._consumer.settings["on_commit"](
        confluent_kafka.KafkaError(confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID), []
    )
    assert taken == [1]
