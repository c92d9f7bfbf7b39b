"""Three brokers: what acks=all and idempotence keep when the leader goes, and acks=1 does not."""

import time
import uuid
from contextlib import contextmanager

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from kafka.errors import KafkaTimeoutError

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from walle_stream.testing.broker import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

COUNT = 300  # before, during and after a fault, each


@pytest.fixture
def name(copies):
    name = f"copies-{uuid.uuid4().hex[:12]}"
    copies.make_topic(name)
    return name


@contextmanager
def producer_of(copies, **options):
    producer = KafkaProducer(
        **copies.options(),
        request_timeout_ms=5_000,
        # shorter than `await_all` waits: what fails there did not even expire
        delivery_timeout_ms=90_000,
        reconnect_backoff_max_ms=500,
        # many small batches: order among them is what is at stake
        batch_size=500,
        **options,
    )
    try:
        yield producer
    finally:
        # one that is collected while it works warns in another test
        producer.close(timeout=5)


def send(producer, name, numbers):
    return [producer.send(name, b"%d" % number, partition=0) for number in numbers]


def await_all(copies, name, sent):
    for count, each in enumerate(sent):
        try:
            each.get(timeout=120)
        except KafkaTimeoutError as error:
            error.add_note(f"{count} of {len(sent)} arrived; leader {copies.leader_of(name)}")
            error.add_note(copies.describe())
            raise


def read_all(copies, name):
    """Numbers in the partition, in its order, up to where it ends now."""
    consumer = KafkaConsumer(
        **copies.options(),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        request_timeout_ms=30_000,
    )
    try:
        partition = TopicPartition(name, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        numbers = []
        deadline_s = time.monotonic() + 60
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline_s, f"read {len(numbers)} of {end} in 60 s"
            for records in consumer.poll(timeout_ms=200).values():
                numbers += [int(record.value) for record in records]
        return numbers
    finally:
        consumer.close()


@pytest.mark.parametrize("fault", ["kill", "pause", "cut"])
def test_all_copies_and_idempotence_lose_double_and_reorder_nothing(copies, name, fault):
    with producer_of(copies, acks="all", enable_idempotence=True) as producer:
        await_all(copies, name, send(producer, name, range(COUNT)))
        leader = copies.leader_of(name)
        getattr(copies, fault)(leader)
        sent = send(producer, name, range(COUNT, 2 * COUNT))
        assert copies.await_leader(name, other_than=leader) != leader
        sent += send(producer, name, range(2 * COUNT, 3 * COUNT))
        await_all(copies, name, sent)
        copies.heal()
        copies.await_copies(name)
    assert read_all(copies, name) == [*range(3 * COUNT)]


def test_the_leader_alone_loses_what_it_acknowledged_in_a_split(copies, name):
    """The control: the same split, seen by a producer that asks for one copy, is not survived."""
    with producer_of(copies, acks=1, enable_idempotence=False) as producer:
        await_all(copies, name, send(producer, name, range(COUNT)))
        # consumers see what the copies have: a leader's word is not enough even before the split
        wait_until(lambda: len(read_all(copies, name)) == COUNT, "the copies of what was sent")
        leader = copies.leader_of(name)
        copies.cut(leader)
        copies.await_leader(name, other_than=leader)
        # it was not told of the new leader, and the old one still says yes
        await_all(copies, name, send(producer, name, range(COUNT, 2 * COUNT)))
    copies.heal()
    copies.await_copies(name)
    lost = set(range(2 * COUNT)) - set(read_all(copies, name))
    assert lost
    assert lost <= set(range(COUNT, 2 * COUNT))
