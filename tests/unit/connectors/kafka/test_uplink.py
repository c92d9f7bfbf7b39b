"""The uplink with a broker that refuses what a case says: order, holes, too large records."""

from collections import deque
from functools import partial
from threading import Condition, Event, Semaphore, Thread

import pytest
from kafka.errors import (
    IllegalStateError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    TopicAuthorizationFailedError,
)

from walle_connectors.kafka import sending
from walle_connectors.kafka.producing import Handed, Refusal
from walle_connectors.kafka.tunnel import KafkaUplink
from walle_connectors.kafka.tunnel_model import KafkaTunnelModel
from walle_stream.errors import (
    BrokerUnreachableError,
    EnvelopeError,
    TopicError,
    TunnelClosedError,
    TunnelError,
)
from walle_stream.wire.envelope import UplinkEnvelope, encode_uplink
from walle_stream.wire.frame import FeatureRecord, encode_body

WAIT_S = 30
PARTITIONS = 4


class Broker:
    """What stands in the topic, and what is to go wrong."""

    def __init__(self):
        self.log = {partition: [] for partition in range(PARTITIONS)}
        self.errors = {}  # by (partition, number of the record): raised once each
        self.too_large = set()
        self.lost = set()  # by (partition, number): a producer does nothing from there on
        self.producers = 0
        self.careful = []  # of each producer of librdkafka
        self.may_answer = Event()
        self.may_answer.set()


class Producer:
    """As the libraries': one batch of a partition at a time, callbacks in its own thread."""

    def __init__(self, broker, on_ack, on_refusal, *, is_alone=True):
        self.broker, self.is_alone = broker, is_alone
        self.on_ack, self.on_refusal = on_ack, on_refusal
        broker.producers += 1
        self.is_halted = False
        self.fatal = IllegalStateError("Producer is closed forcefully.")
        self.queue = deque()
        self.condition = Condition()
        self.thread = Thread(target=self.work, daemon=True)
        self.thread.start()

    def send(self, record, partition, tag):
        number = int(dict(record.headers)["n"])
        if partition >= PARTITIONS:
            raise TopicError(f"topic 't' has no partition {partition}", "t")
        if number in self.broker.too_large:
            return Handed.TOO_LARGE
        with self.condition:
            if self.is_halted:
                return Handed.HALTED
            self.queue.append((partition, number, tag))
            self.condition.notify_all()
        return Handed.QUEUED

    def refuse(self, tag, error):
        is_too_large = isinstance(error, MessageSizeTooLargeError)
        self.on_refusal(tag, Refusal(error, is_too_large, is_alone=self.is_alone))

    def work(self):
        while True:
            with self.condition:
                self.condition.wait_for(lambda: self.queue or self.is_halted)
                if self.is_halted:
                    rest = list(self.queue)
                    break
                partition, number, tag = self.queue.popleft()
                self.condition.notify_all()  # who closes waits for an empty queue
            self.broker.may_answer.wait(WAIT_S)
            if (partition, number) in self.broker.lost:
                self.broker.lost.clear()
                with self.condition:
                    self.condition.wait_for(lambda: self.is_halted, WAIT_S)
                    rest = [(partition, number, tag), *self.queue]
                break
            error = self.broker.errors.get((partition, number))
            if error is None:
                self.broker.log[partition].append(number)
                self.on_ack(tag)
                continue
            if self.is_alone:
                del self.broker.errors[partition, number]
            self.refuse(tag, error)
            if isinstance(error, MessageSizeTooLargeError):
                # as kafka-python: all that follow fail with the same
                self.fatal = error
        for _, _, tag in rest:
            self.refuse(tag, self.fatal)

    def halt(self):
        self.is_halted = True
        with self.condition:
            self.condition.notify_all()

    def close(self, _timeout_s):
        with self.condition:
            self.condition.wait_for(lambda: not self.queue or self.is_halted, WAIT_S)
        self.halt()
        self.thread.join(WAIT_S)


def open_producer(broker, outgoing, on_ack, on_refusal, *, is_careful):
    if outgoing.connection.driver == "kafka-python":
        assert not is_careful
        return Producer(broker, on_ack, on_refusal)
    broker.careful.append(is_careful)
    return Producer(broker, on_ack, on_refusal, is_alone=is_careful)


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def opened(broker, monkeypatch):
    monkeypatch.setattr(sending, "_AGAIN_S", 0)
    monkeypatch.setattr(sending, "connect", lambda make, _stopped, _what: make())
    monkeypatch.setattr(sending, "open_producer", partial(open_producer, broker))
    made = []

    def make(max_bytes=1 << 20, **keys):
        made.append(KafkaUplink(KafkaTunnelModel(brokers="h:1", topic="t", **keys), max_bytes))
        return made[-1]

    yield make
    broker.may_answer.set()
    for each in made:
        each.close()


def frame(partition, *numbers):
    records = [FeatureRecord(f"d{partition}", "t", "1", n, b"{}", b"", n) for n in numbers]
    body = encode_body(records, "none")
    return encode_uplink(UplinkEnvelope(partition, 1, "ab" * 8, numbers[0], body))


def acks(tunnel, partition, count):
    found = []
    with tunnel._condition:
        assert tunnel._condition.wait_for(
            lambda: found.extend(tunnel._acks.pop(partition, ())) or len(found) >= count, WAIT_S
        )
    return found


def without_repeats(log):
    # as a receiver takes it: nothing that is not newer than the last
    taken = []
    for number in log:
        if number > (taken[-1] if taken else 0):
            taken.append(number)
    return taken


def test_a_frame_is_acknowledged_when_its_last_record_is(opened, broker):
    tunnel = opened()
    broker.may_answer.clear()
    tunnel.send([(1, 7, frame(1, 1, 2, 3))])
    assert list(tunnel.acks(1)) == []
    broker.may_answer.set()
    assert acks(tunnel, 1, 1) == [7]
    assert broker.log[1] == [1, 2, 3]
    assert tunnel.waiting_bytes == 0


@pytest.mark.parametrize("failing", [(1,), (4,), (2, 5), (9,)])
def test_after_a_failure_nothing_is_missing_and_nothing_out_of_order(opened, broker, failing):
    for number in failing:
        broker.errors[0, number] = OutOfOrderSequenceNumberError("gone")
    tunnel = opened()
    for number in range(3):
        first = 3 * number + 1
        tunnel.send([(0, number, frame(0, first, first + 1, first + 2))])
        tunnel.send([(1, number, frame(1, first, first + 1, first + 2))])
    assert acks(tunnel, 0, 3) == [0, 1, 2]
    assert acks(tunnel, 1, 3) == [0, 1, 2]
    for partition in (0, 1):
        assert without_repeats(broker.log[partition]) == list(range(1, 10))
    assert broker.producers == 1 + len(failing)


@pytest.mark.parametrize("driver", ["kafka-python", "confluent"])
def test_a_producer_that_does_nothing_is_replaced_if_a_broker_answers(
    opened, broker, monkeypatch, caplog, driver
):
    answers = [False, True, False, True, True]  # once is not enough: it may have come just now

    def probe(_connection):
        sender = Thread(target=tunnel.acks, args=(3,))
        sender.start()
        sender.join(WAIT_S)
        assert not sender.is_alive(), "senders wait for the answer"
        if answers and not answers.pop(0):
            raise BrokerUnreachableError("down")

    monkeypatch.setattr(sending, "STALL_S", 0.02)
    monkeypatch.setattr(sending, "probe_brokers", probe)
    broker.lost.add((0, 3))
    tunnel = opened(driver=driver)
    for number in range(1, 6):
        tunnel.send([(0, number, frame(0, number))])
    assert acks(tunnel, 0, 5) == [1, 2, 3, 4, 5]
    assert without_repeats(broker.log[0]) == [1, 2, 3, 4, 5]
    assert broker.producers == 2
    assert not answers
    assert "no acknowledgement for" in caplog.text


def test_a_producer_with_nothing_in_hand_is_left_alone(opened, broker, monkeypatch):
    looks, probes = Semaphore(0), []
    has_in_hand = KafkaUplink._has_in_hand

    def look(tunnel):
        looks.release()
        return has_in_hand(tunnel)

    def probe(_):
        # while it has something in hand, which a busy machine may make long, it is asked in vain
        probes.append(0)
        raise BrokerUnreachableError("down")

    monkeypatch.setattr(sending, "STALL_S", 0.001)
    monkeypatch.setattr(sending, "probe_brokers", probe)
    monkeypatch.setattr(KafkaUplink, "_has_in_hand", look)
    tunnel = opened()
    tunnel.send([(0, 1, frame(0, 1))])
    assert acks(tunnel, 0, 1) == [1]
    with tunnel._condition:
        while looks.acquire(blocking=False):
            pass  # each of these was made before the acknowledgement
    assert looks.acquire(timeout=WAIT_S)  # a probe that was under way is over
    probes.clear()
    for _ in range(5):
        assert looks.acquire(timeout=WAIT_S)
    assert not probes
    assert broker.producers == 1


def test_acknowledgements_are_contiguous(opened, broker):
    broker.errors[0, 1] = OutOfOrderSequenceNumberError("gone")
    tunnel = opened()
    for number in (1, 2, 3):
        tunnel.send([(0, number, frame(0, number))])
    assert acks(tunnel, 0, 3) == [1, 2, 3]
    assert broker.log[0][0] == 1


@pytest.mark.parametrize("how", ["client", "broker"])
def test_a_record_that_is_too_large_is_told_and_left_out(opened, broker, caplog, how):
    if how == "client":
        broker.too_large.add(2)
    else:
        broker.errors[0, 2] = MessageSizeTooLargeError("too large")
    tunnel = opened()
    tunnel.send([(0, 1, frame(0, 1, 2, 3))])
    tunnel.send([(1, 1, frame(1, 7, 8))])
    assert acks(tunnel, 0, 1) == [1]
    assert acks(tunnel, 1, 1) == [1]
    assert without_repeats(broker.log[0]) == [1, 3]
    assert without_repeats(broker.log[1]) == [7, 8]
    assert tunnel.refused_records == 1
    [line] = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    for words in ("device d0", "task t", "number 2", "max.message.bytes", "spec.tunnel.maxBytes"):
        assert words in line


def test_a_batch_that_is_too_large_is_sent_one_by_one_until_the_record_is_found(opened, broker):
    broker.errors[0, 2] = MessageSizeTooLargeError("too large")
    tunnel = opened(driver="confluent")
    tunnel.send([(0, 1, frame(0, 1, 2, 3))])
    assert acks(tunnel, 0, 1) == [1]
    assert broker.careful == [False, True, False]
    assert without_repeats(broker.log[0]) == [1, 3]
    assert tunnel.refused_records == 1


def test_a_partition_that_the_topic_lacks_ends_the_tunnel(opened):
    tunnel = opened()
    tunnel.send([(PARTITIONS, 1, frame(PARTITIONS, 1))])
    with tunnel._condition:
        assert tunnel._condition.wait_for(lambda: tunnel._failure is not None, WAIT_S)
    with pytest.raises(TopicError, match=f"'t' has no partition {PARTITIONS}"):
        tunnel.acks(0)
    with pytest.raises(TopicError):
        tunnel.send([(0, 1, frame(0, 1))])


def test_whatever_ends_the_thread_is_told_to_senders(opened, monkeypatch):
    def fail(*_, **_keys):
        raise RuntimeError("a bug")

    monkeypatch.setattr(sending, "connect", fail)
    tunnel = opened()
    tunnel._thread.join(WAIT_S)
    with pytest.raises(TunnelError, match="a bug"):
        tunnel.send([(0, 1, frame(0, 1))])


def test_a_sender_waits_for_room_until_the_tunnel_closes(opened, broker):
    tunnel = opened(max_bytes=10)
    broker.may_answer.clear()
    tunnel.send([(0, 1, frame(0, 1))])
    refused = []

    def send():
        try:
            tunnel.send([(0, 2, frame(0, 2))])
        except TunnelClosedError as error:
            refused.append(error)

    sender = Thread(target=send)
    sender.start()
    closer = Thread(target=tunnel.close)
    closer.start()
    sender.join(WAIT_S)
    assert "number 2 of partition 0 stays in the outbox" in str(refused[0])
    broker.may_answer.set()
    closer.join(WAIT_S)
    assert acks(tunnel, 0, 1) == [1]


def test_a_run_that_ends_waits_for_no_room_and_leaves_no_hole(opened, broker):
    tunnel = opened(max_bytes=10)
    broker.may_answer.clear()
    tunnel.send([(0, 1, frame(0, 1))])
    sender = Thread(target=tunnel.send, args=([(0, 2, frame(0, 2))],))
    sender.start()
    tunnel.relax()
    sender.join(WAIT_S)
    assert not sender.is_alive()
    broker.may_answer.set()
    assert acks(tunnel, 0, 1) == [1]
    tunnel.send([(0, 3, frame(0, 3))])  # there would be room
    tunnel.send([(1, 1, frame(1, 1))])
    assert acks(tunnel, 1, 1) == [1]
    assert broker.log[0] == [1]


@pytest.mark.parametrize("failing", [(), (2, 5)])
def test_the_producer_has_few_frames_at_once(opened, broker, monkeypatch, failing):
    monkeypatch.setattr(sending, "HAND_BYTES", 2 * len(frame(0, 1, 2)))
    for number in failing:
        broker.errors[0, number] = OutOfOrderSequenceNumberError("gone")
    tunnel = opened()
    broker.may_answer.clear()
    for number in range(1, 8):
        tunnel.send([(0, number, frame(0, 2 * number - 1, 2 * number))])
    with tunnel._condition:
        assert tunnel._condition.wait_for(lambda: len(tunnel._unsent) == 5, WAIT_S)
        assert sum(each.pending is not None for each in tunnel._lanes[0]) <= 2
        assert not tunnel._may_hand_over()
    broker.may_answer.set()
    assert acks(tunnel, 0, 7) == [*range(1, 8)]
    assert without_repeats(broker.log[0]) == [*range(1, 15)]
    assert tunnel.waiting_bytes == tunnel._in_hand == 0


def test_what_is_no_frame_is_said_to_its_sender(opened):
    with pytest.raises(EnvelopeError):
        opened().send([(0, 1, b"no frame")])


@pytest.mark.parametrize(
    "error",
    [TopicAuthorizationFailedError("t"), TunnelError("TOPIC_AUTHORIZATION_FAILED: Broker: no")],
)
def test_a_refusal_that_lasts_is_told_seldom_asked_seldom_and_says_what_to_do(
    error, broker, opened, monkeypatch, caplog
):
    pauses, is_enough = [], Event()

    class Stopped(Event):
        def wait(self, timeout=None):
            pauses.append(timeout)
            if len(pauses) == sending.REMIND_EVERY + 2:
                broker.errors.clear()
                is_enough.set()
            return self.is_set()

    class Refusing(dict):
        def __delitem__(self, _key):
            pass

    monkeypatch.setattr(sending, "Event", Stopped)
    monkeypatch.setattr(sending, "_AGAIN_S", 0.5)
    broker.errors = Refusing({(0, 1): error})
    up = opened()
    up.send([(0, 1, frame(0, 1))])
    up.send([(0, 2, frame(0, 2))])
    assert is_enough.wait(WAIT_S)
    assert acks(up, 0, 2) == [1, 2]
    up.close()
    told = [each.getMessage() for each in caplog.records if "refuses records" in each.getMessage()]
    assert len(told) == 2
    assert "grant this client WRITE" in told[0]
    assert pauses[:6] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert pauses[sending.REMIND_EVERY] == 10.0
    assert without_repeats(broker.log[0]) == [1, 2]
