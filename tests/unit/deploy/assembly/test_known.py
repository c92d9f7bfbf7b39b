"""Which versions there are, looked up in the store as seldom as that can be."""

from contextlib import contextmanager

import pytest

from walle_deploy.assembly.known import KnownVersions
from walle_deploy.model.releases import VersionFiles
from walle_deploy.store.sqlite import SqliteStore

TASK = "shop/ipv"


class Counting:
    def __init__(self, store):
        self._store, self.looks = store, 0

    @contextmanager
    def reading(self):
        self.looks += 1
        with self._store.reading() as transaction:
            yield transaction

    def publish(self, version):
        with self._store.writing() as transaction:
            transaction.put_version(TASK, version, VersionFiles(()))


@pytest.fixture
def store(tmp_path):
    made = SqliteStore(tmp_path / "releases.db")
    yield Counting(made)
    made.close()


def test_a_version_that_there_is_is_looked_up_once(store):
    store.publish("v1")
    known = KnownVersions(store)
    assert [known(TASK, "v1") for _ in range(5)] == [True] * 5
    assert store.looks == 1


def test_one_that_there_is_not_is_looked_up_again_after_a_second(store):
    now = [0.0]
    known = KnownVersions(store, lambda: now[0])
    assert [known(TASK, "v2") for _ in range(5)] == [False] * 5
    store.publish("v2")
    assert (known(TASK, "v2"), store.looks) == (False, 1)
    now[0] = 1.0
    assert (known(TASK, "v2"), store.looks) == (True, 2)


def test_another_one_is_looked_up_at_once(store):
    store.publish("v2")
    known = KnownVersions(store, lambda: 0.0)
    assert not known(TASK, "v9")
    assert known(TASK, "v2")
    assert not known("shop/other", "v2")


def test_names_that_are_made_up_cost_a_bounded_number_of_looks(store):
    now = [0.0]
    store.publish("v2")
    known = KnownVersions(store, lambda: now[0])
    assert not any(known(TASK, f"made-up-{n}") for n in range(1_000))
    assert store.looks == 100
    assert not known(TASK, "v2")
    now[0] = 1.0
    assert known(TASK, "v2")
