"""The topic that tells the broker's clock goes, whatever happens; no broker."""

import pytest

from walle_connectors.brokers import Connection
from walle_connectors.kafka import doctor
from walle_stream.errors import StoreError, TopicError

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


def test_the_object_store_is_tried_and_left_as_it_was(tmp_path):
    check = doctor.examine_store(str(tmp_path / "shared"), {})
    assert (check.level, check.exit_code) == ("ok", 0)
    assert [path for path in (tmp_path / "shared").rglob("*") if path.is_file()] == []


def test_an_object_store_that_refuses_fails_with_its_exit_code(tmp_path):
    (tmp_path / "file").touch()
    check = doctor.examine_store(str(tmp_path / "file"), {})
    assert (check.level, check.exit_code) == ("fail", StoreError.exit_code)
    assert str(tmp_path / "file") in check.text
