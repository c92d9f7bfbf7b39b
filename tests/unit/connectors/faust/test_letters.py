"""Letters of records that the cloud side refused; the broker is a list."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("faust", reason="the extra `cloud` is not installed")

from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError

from walle_connectors.faust import letters as module
from walle_connectors.faust.letters import RefusedRecords, letter_of
from walle_connectors.faust.settings import LetterPart
from walle_connectors.letter_records import decode_letter
from walle_stream.errors import EnvelopeError
from walle_stream.wire.record import RecordEnvelope, encode_record

PART = LetterPart(brokers="b:1", topic="letters", max_bytes=100_000)
ENVELOPE = RecordEnvelope(
    device_id="d",
    incarnation="ab" * 8,
    partition=1,
    epoch=1,
    sequence_number=7,
    task="ipv",
    task_version="1",
    event_time_ms=5,
)


class Producer:
    """Takes what the broker takes; the first answers are given."""

    answers = ()
    most = 10**6

    def __init__(self, **options):
        self.options = options
        self.taken = []
        Producer.made.append(self)

    async def start(self):
        self.running = True

    async def stop(self):
        self.running = False

    async def send_and_wait(self, topic, value, key, headers):
        if Producer.answers:
            raise Producer.answers.pop(0)
        if len(value) > self.most:
            raise MessageSizeTooLargeError
        self.taken.append((topic, value, key, headers))


@pytest.fixture
def producer(monkeypatch):
    Producer.made, Producer.answers, Producer.most = [], [], 10**6
    monkeypatch.setattr(module, "AIOKafkaProducer", Producer)
    monkeypatch.setattr(module, "_AGAIN_S", 0)
    return Producer


def message(value=b"{}", key=b"d", headers=(), offset=9):
    return SimpleNamespace(
        topic="features", partition=3, offset=offset, key=key, value=value, headers=headers
    )


def put(*messages):
    async def run():
        refused = RefusedRecords(PART, "shop", "walle-cloud-shop")
        for each in messages:
            await refused.put(each, EnvelopeError("why"))
        await refused.close()
        await refused.close()

    asyncio.run(run())


def test_a_letter_says_what_the_record_says_of_itself():
    key, value, headers = encode_record(ENVELOPE, b'{"n":1}')
    found = letter_of(message(value, key, headers), EnvelopeError("in the wrong partition"))
    assert (found.route, found.device_id, found.task) == ("invalid", "d", "ipv")
    assert (found.holds, found.origin) == ("feature", "features[3]@9")
    assert (found.reason, found.error) == ("in the wrong partition", "EnvelopeError")
    assert (found.record, found.size_bytes) == (b'{"n":1}', 7)


@pytest.mark.parametrize(
    ("key", "device_id"), [(None, ""), (b"d\xff", "d\N{REPLACEMENT CHARACTER}")]
)
def test_what_cannot_be_read_is_told_by_its_key(key, device_id):
    found = letter_of(message(None, key), EnvelopeError("no headers"))
    assert (found.route, found.device_id, found.record) == ("decode", device_id, b"")


def test_letters_carry_the_record_with_its_own_headers(producer):
    put(message(headers=[("n", b"7"), ("empty", None)]), message(offset=10))
    [made] = producer.made
    assert not made.running
    assert made.options["acks"] == "all"
    (topic, value, _, headers), second = made.taken
    assert (topic, value) == ("letters", b"{}")
    assert headers[-2:] == [("n", b"7"), ("empty", b"")]
    kept = decode_letter(value, headers)
    assert (kept.pipeline, kept.incarnation) == ("shop", "walle-cloud-shop")
    assert (kept.partition, kept.number, kept.letter.device_id) == (3, 9, "d")
    # the same bytes at another place are another letter
    assert decode_letter(*second[1::2]).idempotency_key != kept.idempotency_key


def test_a_broker_that_is_away_is_waited_for_and_said_once(producer, caplog):
    producer.answers = [
        KafkaConnectionError("away"),
        KafkaConnectionError("away"),
        OSError("reset"),
    ]
    put(message())
    assert len(producer.made[0].taken) == 1
    assert [each.getMessage() for each in caplog.records] == [
        "dead letters wait for topic 'letters': KafkaConnectionError: away",
        "dead letters wait for topic 'letters': reset",
    ]


@pytest.mark.parametrize("most", [30_000, 0])
def test_a_letter_is_cut_to_what_the_topic_takes(producer, most):
    producer.most = most
    put(message(b"x" * 80_000))
    [(_, value, _, headers)] = producer.made[0].taken
    assert most // 2 <= len(value) <= most
    assert not decode_letter(value, headers).is_whole


def test_one_that_fits_in_no_way_is_told(producer, caplog):
    producer.most = -1
    put(message(), message(offset=10))
    assert producer.made[0].taken == []
    assert "a dead letter of features[3]@10 fits into no record" in caplog.text
