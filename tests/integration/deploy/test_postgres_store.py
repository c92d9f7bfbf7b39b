"""The store's suite on a real PostgreSQL, and what only a server can do."""

import pytest

pytest.importorskip("psycopg", reason="the extra `deploy` is not installed")

import psycopg

from walle_deploy.store.postgres import PostgresStore
from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres
from walle_deploy.testing.store_suite import ReleaseStoreSuite
from walle_stream.errors import ServiceUnreachableError

PROGRAMS = find_postgres()

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(PROGRAMS is None, reason="no PostgreSQL (postgres, initdb) on this machine"),
]


@pytest.fixture(scope="module")
def server():
    with TemporaryPostgres(PROGRAMS) as server:
        yield server


def new_schema(url, name):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{name}"')
    return f"{url}&options=-csearch_path%3D{name}"


class TestPostgresStore(ReleaseStoreSuite):
    @pytest.fixture(autouse=True)
    def _server(self, server):
        self.url = server.url

    def make_store(self, folder):
        name = "".join(each for each in folder.name if each.isalnum()).lower()
        return PostgresStore(new_schema(self.url, name))


def test_a_broken_connection_keeps_nothing_and_is_made_anew(server):
    url = new_schema(server.url, "broken")
    store = PostgresStore(url)

    def write_and_lose():
        with store.writing() as writing:
            writing.set_stable("shop/ipv", "v1")
            with psycopg.connect(server.url, autocommit=True) as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'walle' AND state = 'idle in transaction'"
                )

    with pytest.raises(ServiceUnreachableError, match="release store"):
        write_and_lose()
    with store.reading() as reading:
        assert reading.stable() == {}
    store.close()


def test_changes_of_releases_wait_for_no_reports(server):
    url = new_schema(server.url, "beside")
    store, other = PostgresStore(url), PostgresStore(url)
    with store.counting() as counting:
        counting.put_marks({(7, "ab", 0): 1}, 1)
        with other.writing() as writing:
            writing.set_stable("shop/ipv", "v1")
    with other.reading() as reading:
        assert reading.stable() == {"shop/ipv": "v1"}
    store.close()
    other.close()


def test_a_server_that_is_not_there_is_named_without_a_password():
    with pytest.raises(ServiceUnreachableError, match=r"host=/nowhere") as caught:
        PostgresStore("postgresql:///x?host=/nowhere&user=a&password=secret")
    assert "secret" not in str(caught.value)
