import gc
import json
import time

import pytest

from tests.integration.kafka.source_rows import (
    DEADLINE_S,
    letters,
    offsets_of,
    read,
    read_on,
    row,
    source,
    uids,
)
from walle_stream.errors import BrokerUnreachableError, SourceChangedError, SourceError

pytestmark = pytest.mark.integration


@pytest.fixture
def topic(topics):
    name = topics.make(2)
    topics.write(name, [(*row("a", number), 0) for number in range(10)])
    return name


def test_key_and_record_time_win_over_the_value(address, topics):
    name = topics.make(1)
    topics.write(name, [(*row("a", 1, device_id="a", ingest_time_ms=3), 0, 1_700_000_000_123)])
    [event] = [
        event for batch in read(source(address, name), partitions=1) for event in batch.events
    ]
    assert (event.device_id, event.event_time_ms, event.ingest_time_ms) == (
        "a",
        1_001,
        1_700_000_000_123,
    )


def test_dead_letters_name_topic_partition_and_offset(address, topics, driver):
    name = topics.make(1)
    wrong = [("a", None), ("a", b"{"), ("b", row("a", 1, device_id="a")[1])]
    topics.write(name, [row("a", 0), *wrong, row("a", 2)])
    batches = read(source(address, name, driver=driver), partitions=1)
    assert uids(batches) == [0, 2]
    assert [(each.origin, each.route) for each in letters(batches)] == [
        (f"{name}[0]@1", "decode"),
        (f"{name}[0]@2", "decode"),
        (f"{name}[0]@3", "invalid"),
    ]


def test_what_comes_begins_behind_the_token_and_the_end_stays(address, topics, topic):
    first = read(source(address, topic), partitions=2, limit=4, batch_events=3)
    assert uids(first) == [0, 1, 2, 3]
    # the end is where it was when the partition was first opened
    topics.write(topic, [(*row("a", number), 0) for number in range(10, 15)])
    rest = read(source(address, topic), offsets_of(first), partitions=2)
    assert uids(rest) == list(range(4, 10))
    assert sorted(batch.partition for batch in rest if batch.is_end) == [0, 1]
    again = {**offsets_of(first), **offsets_of(rest)}
    assert read(source(address, topic), again, partitions=2) == []
    # without an end it goes on behind the old one
    live = source(address, topic, stopAtEnd=False).open(again, 2, 100)
    more = read_on(live, lambda batches: len(uids(batches)) == 5)
    live.close()
    assert uids(more) == list(range(10, 15))


def test_latest_is_the_latest_of_the_first_start(address, topics, topic):
    made = source(address, topic, startAt="latest", stopAtEnd=False)
    reader = made.open({}, 2, 100)
    anchors = reader.drain()
    reader.close()
    topics.write(topic, [(*row("a", 20), 0), (*row("b", 21), 1)])
    reader = made.open(offsets_of(anchors), 2, 100)
    found = read_on(reader, lambda batches: len(uids(batches)) == 2)
    reader.close()
    assert sorted(uids(found)) == [20, 21]


@pytest.mark.parametrize("moment", [1_700_000_000_500, "2023-11-14T22:13:20.500Z"])
def test_a_moment_is_a_place_to_begin(address, topics, moment):
    name = topics.make(2)
    begin = 1_700_000_000_000
    topics.write(name, [(*row("a", n), 0, begin + 100 * n) for n in range(10)])
    topics.write(name, [(*row("b", 50), 1, begin)])
    found = read(source(address, name, startAt={"timestamp": moment}), partitions=2)
    assert uids(found) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize(("policy", "expected"), [("earliest", list(range(7, 10))), ("latest", [])])
def test_records_that_retention_deleted_are_never_passed_over_unsaid(
    address, topics, topic, policy, expected
):
    offsets = offsets_of(read(source(address, topic), partitions=2, limit=4))
    topics.delete_before(topic, 0, 7)
    with pytest.raises(SourceError, match=rf"{topic}\[0\]: 3 records are lost.*offset 4.*before 7"):
        read(source(address, topic), offsets, partitions=2)
    rest = read(source(address, topic, onMissingOffset=policy), offsets, partitions=2)
    assert uids(rest) == expected


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_retention_that_overtakes_a_reader_is_said(address, topics, topic, driver, policy):
    made = source(address, topic, stopAtEnd=False, onMissingOffset=policy, driver=driver)
    reader = made.open({}, 2, 3)
    topics.delete_before(topic, 0, 7)
    try:
        if policy == "fail":
            with pytest.raises(SourceError, match="7 records are lost"):
                read_on(reader)
        else:
            assert uids(read_on(reader, lambda batches: len(uids(batches)) == 3)) == [7, 8, 9]
    finally:
        reader.close()


def test_a_topic_that_was_made_again_is_another_one(address, topics):
    name = topics.make(1)
    topics.write(name, [row("a", number) for number in range(5)])
    offsets = offsets_of(read(source(address, name), partitions=1))
    topics.delete(name)
    made_again(topics, name)
    topics.write(name, [row("a", number) for number in range(9)])
    with pytest.raises(SourceError, match="was recreated"):
        read(source(address, name), offsets, partitions=1)
    rest = read(source(address, name, onMissingOffset="earliest"), offsets, partitions=1)
    assert uids(rest) == list(range(9))


@pytest.mark.parametrize("policy", ["fail", "earliest"])
@pytest.mark.parametrize("stops", [True, False])
def test_a_topic_that_is_made_again_under_a_reader_follows_the_policy(
    address, topics, driver, policy, stops
):
    name = topics.make(1)
    topics.write(name, [row("a", number) for number in range(60)])
    made = source(address, name, stopAtEnd=stops, onMissingOffset=policy, driver=driver)
    reader = made.open({}, 1, 20)
    read_on(reader, lambda batches: len(uids(batches)) >= 20)
    topics.delete(name)
    made_again(topics, name)
    topics.write(name, [row("a", number) for number in range(1_000, 1_100)])
    try:
        if policy == "fail":
            with pytest.raises(SourceError, match="was recreated"):
                read_on(reader)
        else:
            # some of the new one may be there before it is known to be another
            new = list(range(1_000, 1_100))
            found = read_on(reader, lambda batches: not stops and uids(batches)[-100:] == new)
            assert uids(found)[-100:] == new
    finally:
        reader.close()


def made_again(topics, name):
    from kafka.errors import TopicAlreadyExistsError

    from walle_stream.testing.broker import wait_until

    def make():
        try:
            topics.make(1, name)
        except TopicAlreadyExistsError:
            return False
        return True

    wait_until(make, "the topic to go")


def test_marks_of_transactions_do_not_hide_the_end(address, topics, driver):
    from kafka import KafkaProducer

    name = topics.make(1)
    producer = KafkaProducer(bootstrap_servers=address, transactional_id=name)
    producer.init_transactions()
    for number, is_kept in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.send(name, json.dumps(row("a", number)[1]).encode(), key=b"a")
        producer.commit_transaction() if is_kept else producer.abort_transaction()
    producer.close()
    assert uids(read(source(address, name, driver=driver), partitions=1)) == [0, 2]


def test_a_topic_is_read_over_tls(broker, driver):
    from tests.integration.kafka.topics import Topics

    secure, ca = broker.address("tls"), broker.files().ca
    writer = Topics(broker.address())
    name = writer.make(2)
    writer.write(name, [(*row("a", number), 0) for number in range(10)])
    made = source(secure, name, tls={"ca": str(ca)}, driver=driver)
    assert uids(read(made, partitions=2)) == list(range(10))
    writer.close()


def test_what_is_wrong_at_start_is_one_line(address, topics, topic):
    with pytest.raises(SourceError, match=r"there is no topic 'absent'.*create it"):
        _ = source(address, "absent").partition_count
    assert source(address, topic).partition_count == 2
    with pytest.raises(SourceError, match="has 2 partitions, the data directory 4"):
        source(address, topic).open({}, 4, 10)
    plain = topics.make(2)
    topics.write(plain, [(*row("a", 1), 1), (None, row("a", 1)[1], 0)])
    with pytest.raises(SourceError, match=rf"not keyed by device.*{plain}\[0\]@0 has no key"):
        _ = source(address, plain).partition_count
    foreign = topics.make(2)
    sessions = [("s1", row("", n, device_id=f"d{n}")[1], 1) for n in range(5)]
    topics.write(foreign, sessions)
    with pytest.raises(SourceError, match=rf"{foreign}\[1\]@0 is of device 'd0', its key is b's1'"):
        _ = source(address, foreign).partition_count
    corrupt = topics.make(1)
    topics.write(corrupt, [("s0", b"{"), *((key, value) for key, value, _ in sessions)])
    with pytest.raises(SourceError, match=rf"{corrupt}\[0\]@1 is of device 'd0'"):
        _ = source(address, corrupt).partition_count
    written = [row("a", 0, device_id="b"), row("a", 1, device_id="a"), ("a", b"{")]
    topics.write(foreign, [(*each, 0) for each in written])
    topics.delete_before(foreign, 1, 5)
    assert source(address, foreign).partition_count == 2  # a single one is a dead letter
    with pytest.raises(BrokerUnreachableError, match=r"no broker answers \(127\.0\.0\.1:9: "):
        _ = source("127.0.0.1:9", topic, connectTimeout="200ms").partition_count


def test_a_topic_that_grows_ends_its_reader(address, topics, topic, driver):
    reader = source(address, topic, stopAtEnd=False, driver=driver).open({}, 2, 100)
    found = read_on(reader, lambda batches: len(uids(batches)) == 10)
    topics.grow(topic, 3)
    reader._client.look_again()  # it asks by itself, but seldom
    with pytest.raises(SourceError, match=r"more than its 2 partitions.*walle topics grow"):
        read_on(reader)
    reader.close()
    assert uids(found) == list(range(10))


@pytest.mark.parametrize("most", [10, 700])
def test_a_partition_that_was_paused_with_records_in_hand_goes_on(address, topics, driver, most):
    name, count = topics.make(2), 2_000
    rows = [row("a", number, filler="x" * 400) for number in range(count)]
    topics.write(name, [(*each, number % 2) for number, each in enumerate(rows * 2)])
    reader = source(address, name, stopAtEnd=False, driver=driver).open({}, 2, 10)
    fetcher, found = reader._fetcher, {0: [], 1: []}

    def poll_until(enough):
        ended = time.monotonic() + DEADLINE_S
        while not enough():
            assert time.monotonic() < ended, "nothing more comes"
            for number, records in fetcher.poll(20, most).records.items():
                found[number] += records.offsets

    try:
        poll_until(lambda: found[0])
        fetcher.pause(0)
        taken = len(found[0])
        poll_until(lambda: len(found[1]) == count)
        assert len(found[0]) == taken
        fetcher.seek(0, taken)
        fetcher.resume(0)
        topics.write(name, [(*row("a", count), 1)])
        poll_until(lambda: len(found[0]) == count)
    finally:
        reader.close()
    assert found[0] == list(range(count))


def test_another_topic_is_another_source(address, topics, topic):
    stored = source(address, topic).fingerprint
    source(address, topic).check_fingerprint(stored)
    with pytest.raises(SourceChangedError, match="is not the one"):
        source(address, topics.make(1)).check_fingerprint(stored)
    offsets = offsets_of(read(source(address, topic), partitions=2))
    with pytest.raises(SourceChangedError, match="is of topic"):
        source(address, topics.make(2)).open(offsets, 2, 10)


def test_progress_is_the_share_of_what_was_there(address, topic):
    reader = source(address, topic).open({}, 2, 5)
    assert (reader.progress, reader.unread.rows) == (0.0, 10)
    read_on(reader, lambda batches: len(uids(batches)) == 5)
    assert (reader.progress, reader.unread.rows) == (0.5, 5)
    read_on(reader)
    assert (reader.progress, reader.unread.rows) == (1.0, 0)
    reader.close()


# kafka-python leaves a socket open for each connection that was refused
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_broker_that_dies_and_returns_loses_and_doubles_nothing(broker, driver, caplog):
    caplog.set_level("CRITICAL", "kafka")  # a record of the log would keep the socket
    from tests.integration.kafka.topics import Topics

    address = broker.address()
    topics = Topics(address)
    name = topics.make(2)
    topics.write(name, [(*row("a", number), 0) for number in range(50)])
    reader = source(address, name, stopAtEnd=False, driver=driver).open({}, 2, 7)
    found = read_on(reader, lambda batches: len(uids(batches)) >= 20)
    topics.close(keeps=True)
    broker.kill()
    found += [batch for _ in range(20) for batch in reader.read()]
    broker.start()
    topics = Topics(address)
    topics.write(name, [(*row("a", number), 0) for number in range(50, 60)])
    found += read_on(reader, lambda more: len(uids(found)) + len(uids(more)) >= 60)
    reader.close()
    topics.close()
    assert uids(found) == list(range(60))
    gc.collect()
