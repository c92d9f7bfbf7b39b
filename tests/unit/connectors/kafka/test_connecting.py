"""Ending a producer that has records which nobody takes."""

import pytest
from kafka.errors import KafkaTimeoutError

from kafka import KafkaProducer
from walle_connectors.kafka.python_producer import StoppableProducer, close_producer


class Unanswered(KafkaProducer):
    """One that no broker ever answers: it cannot be flushed."""

    def __init__(self):
        self.said = []

    def flush(self, timeout=None):
        self.said.append(("flush", timeout))
        raise KafkaTimeoutError

    def close(self, timeout=None):
        self.flush(timeout)
        self.said.append(("closed", timeout))

    def __del__(self):
        pass


class Producer(StoppableProducer, Unanswered):
    pass


@pytest.fixture
def producer():
    return Producer()


def test_what_cannot_be_flushed_in_time_is_dropped(producer):
    close_producer(producer, 1.5)
    assert producer.said == [("flush", 1.5), ("closed", 0)]


def test_who_halts_waits_for_nothing(producer):
    producer.halt()
    close_producer(producer, 1.5)
    assert producer.said == [("closed", 0), ("closed", 1.5)]
