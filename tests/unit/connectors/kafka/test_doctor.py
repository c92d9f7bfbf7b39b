"""The topic that tells the broker's clock goes, whatever happens; no broker."""

import pytest

from walle_connectors.brokers import Connection
from walle_connectors.kafka import doctor
from walle_stream.errors import TopicError

CONNECTION = Connection(brokers="127.0.0.1:9092")


class Cluster:
    def __init__(self, denied=""):
        self.topics, self._denied = set(), denied

    def create(self, name, *_options):
        self.topics.add(name)
        if self._denied == "interrupted":
            raise KeyboardInterrupt

    def delete(self, name):
        if self._denied == "delete":
            raise TopicError("the cluster refuses")
        self.topics.remove(name)


@pytest.fixture
def cluster(monkeypatch):
    def make(denied="", *, append=lambda *_: (1, 1, 2)):
        made = Cluster(denied)
        monkeypatch.setattr(doctor, "_append", append)
        return made

    return make


def test_it_is_deleted_when_the_clock_was_told(cluster):
    made = cluster()
    assert doctor._clock(CONNECTION, made).level == "ok"
    assert not made.topics


def interrupted(*_arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("denied", "append"), [("interrupted", None), ("", interrupted)])
def test_it_is_deleted_when_somebody_has_enough(cluster, denied, append):
    made = cluster(denied, append=append)
    with pytest.raises(KeyboardInterrupt):
        doctor._clock(CONNECTION, made)
    assert not made.topics


def test_one_that_cannot_be_deleted_is_named(cluster):
    made = cluster("delete")
    check = doctor._clock(CONNECTION, made)
    assert check.level == "warn"
    assert f"topic {made.topics.pop()}, created for this check, cannot be deleted" in check.text
