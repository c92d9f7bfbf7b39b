"""What stands between the release store and its users: tables, counts."""

import pytest

from walle_deploy.service.ports import DeviceBatch
from walle_deploy.store.adapters import StoredDevices, StoredTables
from walle_deploy.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path):
    made = SqliteStore(tmp_path / "releases.db")
    yield made
    made.close()


def batch(counts, worker="w-1"):
    return DeviceBatch(worker, 1, sum(counts.values()), counts, ())


def told(store, task="shop/ipv"):
    with store.reading() as transaction:
        return dict(transaction.device_counts(task))


def test_the_table_is_that_of_the_store(store):
    table = StoredTables(store)
    before = table.generation()
    with store.writing() as transaction:
        transaction.set_stable("shop/ipv", "v1")
    assert table.generation() > before
    assert table.load().stable == {"shop/ipv": "v1"}
    assert table.load().generation == table.generation()


def test_counts_of_workers_add_up_and_are_replaced(store):
    first, second = StoredDevices(store), StoredDevices(store)
    first.write(batch({("shop/ipv", "v1"): 2, ("shop/old", "v1"): 1}))
    second.write(batch({("shop/ipv", "v1"): 3, ("shop/ipv", "v2"): 1}, "w-2"))
    assert told(store) == {"v1": 5, "v2": 1}
    first.write(batch({("shop/ipv", "v2"): 2}))
    assert (told(store), told(store, "shop/old")) == ({"v1": 3, "v2": 3}, {})
