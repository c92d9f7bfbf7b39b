"""Fetching through a stand-in of librdkafka's consumer: what its errors and places mean."""

import pytest

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra `confluent` is missing")

from walle_connectors.kafka import KafkaSourceModel  # noqa: E402 - behind the extra
from walle_connectors.kafka.source import confluent  # noqa: E402 - same
from walle_connectors.kafka.source.confluent import ConfluentFetcher  # noqa: E402 - same
from walle_connectors.kafka.source.fetching import Polled, Record, columns  # noqa: E402 - same
from walle_stream.errors import SourceError  # noqa: E402 - same

KafkaError = confluent_kafka.KafkaError


class Message:
    def __init__(self, number, offset, code=None):
        self._number, self._offset, self._code = number, offset, code

    def error(self):
        return None if self._code is None else KafkaError(self._code)

    def partition(self):
        return self._number

    def offset(self):
        return self._offset

    def timestamp(self):
        return (1, 10 * self._offset)

    def key(self):
        return b"k"

    def value(self):
        return b"v"


class Consumer:
    def __init__(self, settings):
        self.settings = settings
        self.assigned, self.paused, self.messages = [], [], []

    def assign(self, places):
        self.assigned.append({place.partition: place.offset for place in places})

    def pause(self, places):
        self.paused += [place.partition for place in places]

    def resume(self, places):
        for place in places:
            self.paused.remove(place.partition)

    def consume(self, most, _timeout):
        taken, self.messages = self.messages[:most], self.messages[most:]
        return taken

    def poll(self, _timeout):
        return None


@pytest.fixture
def fetcher(monkeypatch):
    monkeypatch.setattr(confluent, "Consumer", Consumer)
    made = ConfluentFetcher(KafkaSourceModel.model_validate({"brokers": "h:1", "topic": "t"}))
    made.assign([0, 1])
    for number in (0, 1):
        made.seek(number, 5)
    return made


def give(fetcher, *messages, most=10):
    fetcher._consumer.messages += [Message(*each) for each in messages]
    return fetcher.poll(0, most)


def test_all_are_assigned_at_once_at_their_places(fetcher):
    assert give(fetcher) == Polled({}, [])
    fetcher.poll(0, 1)
    assert fetcher._consumer.assigned == [{0: 5, 1: 5}]


def test_records_come_by_partition_and_move_its_place(fetcher):
    found = give(fetcher, (0, 5), (1, 5), (0, 6), (0, 9), most=3)
    assert found.records == {
        0: columns([Record(5, 50, b"k", b"v"), Record(6, 60, b"k", b"v")]),
        1: columns([Record(5, 50, b"k", b"v")]),
    }
    assert (fetcher.position(0), fetcher.position(1), fetcher.position(2)) == (7, 6, None)


def test_the_end_of_a_partition_is_its_place_behind_what_is_no_record(fetcher):
    give(fetcher, (0, 5), (0, 8, KafkaError._PARTITION_EOF))
    assert fetcher.position(0) == 8


def test_a_place_that_is_gone_is_told_and_sought_anew(fetcher):
    found = give(fetcher, (1, 5), (0, 5, KafkaError._AUTO_OFFSET_RESET))
    assert (list(found.records), found.gone) == ([1], [0])
    fetcher.seek(0, 20)
    fetcher.resume(0)
    give(fetcher)
    assert fetcher._consumer.assigned[-1] == {0: 20, 1: 6}


def test_a_paused_partition_is_not_assigned_again(fetcher):
    give(fetcher)
    fetcher.pause(1)
    assert fetcher._consumer.paused == [1]
    fetcher.seek(0, 7)
    give(fetcher)
    assert fetcher._consumer.assigned[-1] == {0: 7}
    fetcher.resume(1)
    give(fetcher)
    assert (fetcher._consumer.assigned[-1], fetcher._consumer.paused) == ({0: 7, 1: 5}, [])


@pytest.mark.parametrize(
    "code", [KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._AUTHENTICATION]
)
def test_a_broker_that_is_away_is_waited_for(fetcher, code):
    assert give(fetcher, (0, 5, code), (0, 5)).records[0].offsets == [5]


def test_any_other_error_ends_the_reading(fetcher):
    with pytest.raises(SourceError, match="TOPIC_AUTHORIZATION_FAILED"):
        give(fetcher, (0, 5, KafkaError.TOPIC_AUTHORIZATION_FAILED))
