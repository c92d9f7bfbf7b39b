"""Hosts of a consumer group share a topic: nothing is lost or doubled wherever partitions go."""

import threading
import time

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from tests.integration.kafka.source_rows import DEADLINE_S, Host, Ledger, row, source
from walle_stream.errors import SourceError, SourceMovedError, StoreLockedError

pytestmark = pytest.mark.integration


@pytest.fixture
def live(address, topic, group_driver):
    """Make a source of the topic's group, which does not end unless told, by either library."""

    def make(**keys):
        given = {"group": f"{topic}-group", "stopAtEnd": False, "driver": group_driver, **keys}
        return source(address, topic, **given)

    return make


@pytest.fixture
def topic(topics):
    name = topics.make(4)
    topics.write(name, rows(range(200)))
    return name


def rows(numbers):
    return [(*row(f"d{number % 8}", number), number % 8 % 4) for number in numbers]


def turns(hosts, until):
    deadline = time.monotonic() + DEADLINE_S
    while not until():
        for host in hosts:
            host.turn()
        assert time.monotonic() < deadline, "the group does not get on"


def expect_all(ledger, count):
    found = sorted(number for taken in ledger.uids.values() for number in taken)
    assert found == list(range(count))
    for partition, taken in ledger.uids.items():
        assert taken == [number for number in range(count) if number % 8 % 4 == partition]


def test_partitions_move_to_hosts_that_come_and_from_hosts_that_go(topics, topic, live):
    ledger = Ledger()
    first = Host("one", ledger, live())
    turns([first], lambda: first.numbers == [0, 1, 2, 3])
    second = Host("two", ledger, live())
    turns([first, second], lambda: len(first.numbers) == len(second.numbers) == 2)
    # cooperative: what stayed was neither closed nor opened again
    moved = [what for what in ledger.story if what[:2] == ("one", "revoke")]
    assert sum(len(numbers) for _, _, numbers, _ in moved) == 2
    topics.write(topic, rows(range(200, 300)))
    turns([first, second], lambda: sum(map(len, ledger.uids.values())) >= 300)
    first.reader.close()
    assert first.numbers == []
    topics.write(topic, rows(range(300, 400)))
    turns([second], lambda: sum(map(len, ledger.uids.values())) >= 400)
    second.reader.close()
    assert ledger.owners == {}
    expect_all(ledger, 400)
    generations = [generation for _, what, _, generation in ledger.story if what == "assign"]
    assert generations == sorted(generations)
    assert generations[0] >= 1
    assert {*first.threads, *second.threads} == {threading.current_thread()}


@pytest.mark.full
def test_hosts_of_both_libraries_share_a_group(address, topic):
    pytest.importorskip("confluent_kafka", reason="the extra `confluent` is not installed")
    ledger, hosts = Ledger(), []
    for name, driver in (("one", "confluent"), ("two", "kafka-python"), ("three", "confluent")):
        keys = {"group": f"{topic}-group", "stopAtEnd": False, "driver": driver}
        hosts.append(Host(name, ledger, source(address, topic, **keys)))
        turns(hosts, lambda: len(ledger.owners) == 4 and all(host.numbers for host in hosts))
    hosts.pop(0).reader.close()
    turns(hosts, lambda: sum(map(len, ledger.uids.values())) >= 200 and len(ledger.owners) == 4)
    expect_all(ledger, 200)
    for host in hosts:
        host.reader.close()


def test_what_was_not_committed_when_it_was_revoked_is_committed_then(live):
    ledger = Ledger()
    first = Host("one", ledger, live())
    while not first.turn(commits=False):
        assert not ledger.uids
    first.reader.close()
    assert sum(map(len, ledger.uids.values())) > 0
    second = Host("two", ledger, live())
    turns([second], lambda: sum(map(len, ledger.uids.values())) >= 200)
    second.reader.close()
    expect_all(ledger, 200)


class Late(Host):
    """Its partitions may still be another's in the ledger, who has been put out."""

    def assign(self, partitions, generation):
        with self.ledger.lock:
            for number in partitions:
                self.ledger.owners.pop(number, None)
        return super().assign(partitions, generation)


class PutOut(Host):
    """Another host already owns the partitions that it loses."""

    def lose(self, partitions):
        self._note("lose", partitions)
        for number in partitions:
            del self.waiting[number]


class Bound(Host):
    """Its state is in its data directory alone."""

    may_begin_anew = False


class Elsewhere(Bound):
    """It has another one."""

    incarnation = "there"


def die(host):
    """Nothing is committed or told; only the group need not wait until it notices."""
    host.reader._is_closed = True
    host.reader._group.leave(gives_back=False)
    host.reader._client.close()


def is_member(host):
    return host.reader._group.is_member


def await_polls(host, timeout_ms):
    """Let a member be without a read for so long; the library counts by the same clock."""
    ended = time.monotonic() + timeout_ms / 1000
    while time.monotonic() < ended:
        assert is_member(host), "the group has put the host out"
        threading.Event().wait(0.05)


def test_a_host_that_waits_for_room_stays_a_member(topics, topic, live):
    keys = {"pollInterval": "2s", "sessionTimeout": "6s"}
    ledger = Ledger()
    first = Host("one", ledger, live(**keys))
    turns([first], lambda: sum(map(len, ledger.uids.values())) >= 200)
    topics.write(topic, rows(range(200, 300)))
    await_polls(first, 7_000)  # longer than it may be busy
    topics.write(topic, rows(range(300, 400)))
    turns([first], lambda: sum(map(len, ledger.uids.values())) >= 400)
    first.reader.close()
    expect_all(ledger, 400)
    assert [what for _, what, _, _ in ledger.story] == ["assign", "revoke"]


def test_a_host_that_gives_nothing_back_loses_what_it_had(live):
    keys = {"pollInterval": "4s", "sessionTimeout": "6s"}
    ledger = Ledger()
    first = PutOut("one", ledger, live(**keys))
    while not first.numbers:
        first.turn(commits=False)
    # it reads no more, while the group wants half of its partitions for another
    second = Late("two", ledger, live(**keys))
    turns([second], lambda: len(second.numbers) == 4)
    while ("one", "lose") not in {each[:2] for each in ledger.story}:
        first.turn(commits=False)
    assert first.numbers == []
    turns([first, second], lambda: sum(map(len, ledger.uids.values())) >= 200)
    first.reader.close()
    second.reader.close()
    expect_all(ledger, 200)


def test_a_bounded_run_of_a_group_ends_once_per_partition(live):
    ledger = Ledger()
    hosts = [Host(name, ledger, live(stopAtEnd=True)) for name in ("one", "two")]
    turns(hosts, lambda: all(host.reader.is_done for host in hosts))
    for host in hosts:
        host.reader.close()
    expect_all(ledger, 200)
    assert sorted(ledger.ends) == [0, 1, 2, 3]
    late = Host("three", ledger, live(stopAtEnd=True))
    turns([late], lambda: late.reader.is_done)
    late.reader.close()
    assert sorted(ledger.ends) == [0, 1, 2, 3]


def test_what_others_read_is_not_begun_anew_without_its_state(live):
    here = Ledger()
    first = Bound("one", here, live())
    turns([first], lambda: sum(map(len, here.uids.values())) >= 200)
    first.reader.close()
    there = Ledger()
    second = Elsewhere("two", there, live())
    with pytest.raises(SourceError, match=r"was read up to offset 50 .* its state is not here"):
        turns([second], lambda: False)
    second.reader.close()
    assert not there.uids
    assert not there.owners
    # with what the first has kept it goes on
    third = Bound("three", here, live())
    turns([third], lambda: len(third.numbers) == 4)
    third.reader.close()


def test_who_dies_before_he_has_said_how_far_has_said_whose_it_is(live):
    first = Bound("one", Ledger(), live())
    turns([first], lambda: len(first.numbers) == 4)
    die(first)
    # with the same data directory, in which nothing was committed
    again = Bound("again", Ledger(), live())
    turns([again], lambda: len(again.numbers) == 4)
    die(again)
    there = Ledger()
    second = Elsewhere("two", there, live())
    with pytest.raises(SourceError, match=r"offset 0 by another member .* state is not here"):
        turns([second], lambda: False)
    second.reader.close()
    assert not there.uids


class Moved(Host):
    """Somebody opened partition 1 in a later generation, where the group has forgotten it."""

    def assign(self, partitions, generation):
        found = super().assign(partitions, generation)
        if 1 in partitions and generation <= 9:
            raise SourceMovedError("partition 1 was opened in generation 9", 9)
        return found


def test_a_group_that_was_made_anew_goes_on_above_what_its_state_has_seen(live):
    ledger = Ledger()
    host = Moved("one", ledger, live())
    turns([host], lambda: sum(map(len, ledger.uids.values())) >= 200)
    host.reader.close()
    expect_all(ledger, 200)
    story = [(what, generation) for _, what, _, generation in ledger.story]
    assert story == [("assign", 1), ("lose", 0), ("assign", 10), ("revoke", 0)]


def test_who_is_no_member_any_more_opens_nothing(live, monkeypatch):
    ledger = Ledger()
    host = Host("one", ledger, live())
    group, refused = host.reader._group, []
    claim = group.claim

    def claim_late(told):
        # as where the group has put it out, which it has not heard of
        if not refused:
            refused.append(told)
            return False
        return claim(told)

    monkeypatch.setattr(group, "claim", claim_late)
    turns([host], lambda: sum(map(len, ledger.uids.values())) >= 200)
    host.reader.close()
    expect_all(ledger, 200)
    assert [what for _, what, _, _ in ledger.story] == ["assign", "revoke"]
    assert len(refused) == 1


def test_an_error_of_the_host_is_raised_and_ends_the_membership(live):
    class Broken(Host):
        def assign(self, partitions, generation):
            super().assign(partitions, generation)
            raise StoreLockedError("held")

    ledger = Ledger()
    broken = Broken("one", ledger, live())
    with pytest.raises(StoreLockedError, match="held"):
        turns([broken], lambda: False)
    with pytest.raises(SourceError, match="after an error"):
        broken.turn()
    broken.reader.close()
    broken.reader.close()
    ledger.owners.clear()
    second = Host("two", ledger, live())
    turns([second], lambda: sum(map(len, ledger.uids.values())) >= 200)
    second.reader.close()


def test_tools_see_the_lag(address, topic, live):
    from kafka.admin import KafkaAdminClient

    ledger = Ledger()
    host = Host("one", ledger, live())
    turns([host], lambda: sum(map(len, ledger.uids.values())) >= 200)
    host.reader.close()
    admin = KafkaAdminClient(bootstrap_servers=address)
    found = admin.list_group_offsets({f"{topic}-group": None})
    admin.close()
    [offsets] = found.values()
    assert sorted(each.offset for each in offsets.values()) == [50, 50, 50, 50]


def test_reading_does_not_wait_for_the_group(live):
    ledger = Ledger()
    first = Host("one", ledger, live())
    turns([first], lambda: first.numbers == [0, 1, 2, 3])
    # the second one cannot join before the first has read: both are asked by one thread
    second = Host("two", ledger, live())
    while not second.numbers:
        second.turn()
        first.turn()
    first.reader.close()
    second.reader.close()
