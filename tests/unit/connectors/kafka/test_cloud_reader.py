"""How long a worker of the cloud side waits without progress; no broker."""

from types import SimpleNamespace

import pytest

from tests.unit.connectors.kafka.topic_double import Client
from walle_connectors.kafka import KafkaSourceModel
from walle_connectors.kafka.cloud import reader as reading
from walle_connectors.kafka.cloud.reader import CloudReader
from walle_connectors.kafka.source.fetching import Polled
from walle_connectors.kafka.source.group import Told
from walle_connectors.kafka.source.offsets import Bounds
from walle_stream.errors import BrokerUnreachableError, CloudStalledError

PATIENCE_MS = 60_000.0


class Waiting(Client):
    topics = {"up": [[]]}  # noqa: RUF012 - as the base's
    is_away = False

    def bounds(self, numbers):
        if self.is_away:
            raise BrokerUnreachableError("away")
        return {number: Bounds(0, 9, 0) for number in numbers}

    def told(self, numbers):
        return dict.fromkeys(numbers, Told(0))


def nothing(*_, **__):
    return None


@pytest.fixture
def worker(monkeypatch):
    """A worker that gets none of the records which the topic has."""
    fetcher = SimpleNamespace(
        assign=nothing, seek=nothing, resume=nothing, close=nothing, position=lambda _: 0
    )
    group = SimpleNamespace(
        fetcher=fetcher,
        owned={0},
        is_member=True,
        join=nothing,
        take=lambda _: True,
        give=nothing,
        poll=lambda _: Polled(),
        claim=lambda _: True,
        tell=nothing,
        leave=nothing,
    )
    tables = SimpleNamespace(
        assign=lambda *_: {},
        incarnation="here",
        may_begin_anew=True,
        expect=nothing,
        take=nothing,
        joined=nothing,
        held_until=nothing,
    )
    made = SimpleNamespace(now_ms=1e6)
    monkeypatch.setattr(reading, "monotonic_ms", lambda: made.now_ms)
    model = KafkaSourceModel.model_validate({"brokers": "h:1", "topic": "up", "group": "g"})
    made.client = Waiting(model)
    made.reader = CloudReader(made.client, group, model, tables, None, PATIENCE_MS)

    def read(times, step_ms=1_000.0):
        for _ in range(times):
            made.reader.read()
            made.now_ms += step_ms

    made.read = read
    yield made
    made.reader.close()


def test_a_worker_that_gets_nothing_of_what_is_there_ends(worker):
    worker.read(60)
    with pytest.raises(CloudStalledError, match=r"60 s.*partitions \[0\] of 'up'"):
        worker.read(2)


@pytest.mark.parametrize("stopped_ms", [PATIENCE_MS, 100 * PATIENCE_MS])
def test_one_that_was_stopped_has_its_time_when_it_goes_on(worker, stopped_ms):
    worker.read(40)
    worker.now_ms += stopped_ms
    worker.read(10)
    with pytest.raises(CloudStalledError):
        worker.read(10)


def test_a_broker_that_is_away_is_no_stall(worker):
    worker.read(1)
    worker.client.is_away = True
    worker.read(100)
    worker.client.is_away = False
    worker.read(30)
    with pytest.raises(CloudStalledError):
        worker.read(60)
