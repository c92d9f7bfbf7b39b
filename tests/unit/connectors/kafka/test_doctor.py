"""The topic that tells the broker's clock goes, whatever happens; no broker."""

from contextlib import contextmanager

import pytest

from kafka import errors
from walle_connectors.brokers import Connection
from walle_connectors.kafka import doctor

CONNECTION = Connection(brokers="127.0.0.1:9092")


class Cluster:
    def __init__(self, denied=""):
        self.topics, self._denied = set(), denied

    @contextmanager
    def admin_client(self, _connection):
        yield self

    def create_topics(self, topics, **_options):
        self.topics |= topics.keys()
        if self._denied == "interrupted":
            raise KeyboardInterrupt

    def delete_topics(self, names):
        if self._denied == "delete":
            raise errors.TopicAuthorizationFailedError("t")
        self.topics -= set(names)


@pytest.fixture
def cluster(monkeypatch):
    def make(denied="", *, append=lambda *_: (1, 1, 2)):
        made = Cluster(denied)
        monkeypatch.setattr(doctor, "admin_client", made.admin_client)
        monkeypatch.setattr(doctor, "_append", append)
        return made

    return make


def test_it_is_deleted_when_the_clock_was_told(cluster):
    made = cluster()
    assert doctor._clock(CONNECTION).level == "ok"
    assert not made.topics


def interrupted(*_arguments):
    raise KeyboardInterrupt


@pytest.mark.parametrize(("denied", "append"), [("interrupted", None), ("", interrupted)])
def test_it_is_deleted_when_somebody_has_enough(cluster, denied, append):
    made = cluster(denied, append=append)
    with pytest.raises(KeyboardInterrupt):
        doctor._clock(CONNECTION)
    assert not made.topics


def test_one_that_cannot_be_deleted_is_named(cluster):
    made = cluster("delete")
    check = doctor._clock(CONNECTION)
    assert check.level == "warn"
    assert f"topic {made.topics.pop()} was made for it and cannot be deleted" in check.text
