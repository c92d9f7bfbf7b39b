from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

from walle_connectors.postgres import CONNECTOR, PostgresSinkModel
from walle_deploy.testing.postgres import TemporaryPostgres, find_postgres
from walle_stream.errors import SinkError
from walle_stream.ports import MergedFeature
from walle_stream.testing.sink_suite import SinkSuite, merged_features

pytestmark = pytest.mark.skipif(
    find_postgres() is None, reason="no PostgreSQL (postgres, initdb) on this machine"
)


@pytest.fixture(scope="module")
def server():
    with TemporaryPostgres(find_postgres()) as running:
        yield running


class TestPostgresSink(SinkSuite):
    @pytest.fixture(autouse=True)
    def _server(self, server):
        self.url = server.url
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS s CASCADE")
            connection.execute("CREATE SCHEMA s")

    def open(self):
        model = PostgresSinkModel(url=self.url, table="s.features")
        return CONNECTOR.open_sink(model, "walle-shop-db")

    def read(self):
        names = [name for name in MergedFeature.__struct_fields__ if name != "number"]
        columns = [sql.Identifier(name) for name in names]
        columns[names.index("feature")] = sql.SQL("feature::text")
        query = sql.SQL("SELECT {} FROM s.features").format(sql.SQL(", ").join(columns))
        with psycopg.connect(self.url, client_encoding="utf8") as connection:
            for row in connection.execute(query):
                kept = dict(zip(names, row, strict=True))
                yield MergedFeature(0, **kept | {"feature": kept["feature"].encode()})

    def test_a_role_that_may_make_no_table_writes_to_one_that_is_there(self):
        sink, features = self.another(), merged_features(2)
        sink.write("a", iter(features[:1]))
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DROP ROLE IF EXISTS writer")
            connection.execute("CREATE ROLE writer LOGIN")
            connection.execute("GRANT USAGE ON SCHEMA s TO writer")
            connection.execute("GRANT SELECT, INSERT, UPDATE ON s.features TO writer")
        self.url, owner = f"{self.url}&user=writer", self.url
        self.another().write("a", iter(features))
        self.url = owner
        self.expect(features)

    @pytest.mark.parametrize(
        ("more", "expected"),
        [
            ("", ("walle-shop-db", "30s", "UTF8", "4MB")),
            (
                "&application_name=mine&client_encoding=latin1&options="
                + quote("-c statement_timeout=7s -c work_mem=7MB"),
                ("mine", "7s", "LATIN1", "7MB"),
            ),
            (f"&options={quote('-c work_mem=7MB')}", ("walle-shop-db", "30s", "UTF8", "7MB")),
        ],
    )
    def test_what_the_url_says_of_the_session_counts(self, more, expected):
        names = "application_name", "statement_timeout", "client_encoding", "work_mem"
        shown = ", ".join(f"current_setting('{name}') AS {name}" for name in names)
        owner, self.url = self.url, f"{self.url}{more}"
        self.another().write("a", iter(merged_features(1)))
        with psycopg.connect(owner, autocommit=True, client_encoding="utf8") as connection:
            connection.execute(
                "CREATE FUNCTION s.note() RETURNS trigger LANGUAGE plpgsql AS "
                f"$$ BEGIN CREATE TABLE s.seen AS SELECT {shown}; RETURN NEW; END $$"
            )
            connection.execute(
                "CREATE TRIGGER note BEFORE INSERT ON s.features EXECUTE FUNCTION s.note()"
            )
            self.another().write("a", iter(merged_features(1)))
            assert connection.execute("SELECT * FROM s.seen").fetchone() == expected

    def test_a_connection_that_broke_is_made_anew(self):
        sink, features = self.another(), merged_features(2_000)
        place = sink.write("a", iter(features)).place
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'walle-shop-db'"
            )
        rest = [each for each in features if each.number >= place]
        with pytest.raises(SinkError):
            sink.write("a", iter(rest))
        sink.write("a", iter(rest))
        self.expect(features)
        sink.close()


def test_what_the_database_refuses_is_said_without_the_password(server):
    url = f"{server.url}&password=secret"
    for model in (
        PostgresSinkModel(url=url, table="no_schema.features"),
        PostgresSinkModel(url="postgresql://walle:secret@127.0.0.1:1/x"),
    ):
        with pytest.raises(SinkError) as found:
            CONNECTOR.open_sink(model, "x").write("a", iter(merged_features(1)))
        assert "secret" not in str(found.value)
        assert model.table in found.value.message
