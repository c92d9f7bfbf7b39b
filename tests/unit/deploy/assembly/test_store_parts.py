"""What stands between the release store and its users: tables."""

import pytest

from walle_deploy.store.adapters import StoredTables
from walle_deploy.store.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path):
    made = SqliteStore(tmp_path / "releases.db")
    yield made
    made.close()


def test_the_table_is_that_of_the_store(store):
    table = StoredTables(store)
    before = table.generation()
    with store.writing() as transaction:
        transaction.set_stable("shop/ipv", "v1")
    assert table.generation() > before
    assert table.load().stable == {"shop/ipv": "v1"}
    assert table.load().generation == table.generation()
