"""A table with one row per feature, keyed by the feature, so a repeated write changes nothing."""

from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from walle_stream.errors import SinkError
from walle_stream.ports import MergedFeature, Written, first_part

_CONNECT_S: Final = 5
_STATEMENT_MS: Final = 30_000
_COLUMNS: Final = {
    "device_id": "text NOT NULL",
    "incarnation": "text NOT NULL",
    "sequence_number": "bigint NOT NULL",
    "task": "text NOT NULL",
    "task_version": "text NOT NULL",
    "event_time_ms": "bigint NOT NULL",
    "feature": "json NOT NULL",  # jsonb refuses \u0000, which JSON allows
    "encoding": "bytea NOT NULL",
}
_KEY: Final = sql.SQL("device_id, incarnation, sequence_number")


class PostgresSink:
    """Implements ``ports.FeatureSink``; replaces a broken connection."""

    pause_s = 0.0

    def __init__(self, url: str, table: str, identity: str) -> None:
        """Prepare; the first features connect. The URL's settings override ``identity``."""
        self._url, self._shown, self._identity = url, table, identity
        self._table = sql.Identifier(*table.split("."))
        names = [sql.Identifier(name) for name in _COLUMNS]
        self._insert = sql.SQL(
            "INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) DO UPDATE SET {}"
        ).format(
            self._table,
            sql.SQL(", ").join(names),
            sql.SQL(", ").join([sql.Placeholder()] * len(names)),
            _KEY,
            sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in names[3:]),
        )
        self._connection: psycopg.Connection[Any] | None = None

    def write(self, lane: str, features: Iterator[MergedFeature]) -> Written:
        """Write up to 1,000 features in one transaction; see ``FeatureSink.write``.

        Raises:
            SinkError: None of the features counts as written.
        """
        del lane  # a feature's key is enough
        batch = first_part(features)
        try:
            connection = self._connected()
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(self._insert, [_row(each) for each in batch])
        except psycopg.Error as error:
            self.close()
            said = str(error).partition("\n")[0] or type(error).__name__
            raise SinkError(f"table {self._shown}: {said}") from error
        behind = batch[-1].number + 1
        return Written(behind, behind)

    def close(self) -> None:
        """Disconnect; see ``FeatureSink.close``."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            given: dict[str, Any] = {
                "connect_timeout": _CONNECT_S,
                "application_name": self._identity,
                "client_encoding": "utf8",
                **conninfo_to_dict(self._url),
            }
            self._connection = connection = psycopg.connect(**given, autocommit=True)
            if "statement_timeout" not in given.get("options", ""):
                connection.execute(f"SET statement_timeout = {_STATEMENT_MS}")
            # a role that may write to the table need not have the right to make one
            found = connection.execute("SELECT to_regclass(%s)", [self._table.as_string()])
            if found.fetchone() == (None,):
                columns = sql.SQL(", ").join(
                    sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
                    for name, kind in _COLUMNS.items()
                )
                connection.execute(
                    sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, PRIMARY KEY ({}))").format(
                        self._table, columns, _KEY
                    )
                )
        return self._connection


def _row(feature: MergedFeature) -> tuple[Any, ...]:
    return (
        _text(feature.device_id),
        feature.incarnation,
        feature.sequence_number,
        _text(feature.task),
        _text(feature.task_version),
        feature.event_time_ms,
        feature.feature.decode(),
        feature.encoding,
    )


def _text(value: str) -> str:
    # text in PostgreSQL cannot contain NUL
    return value.replace("\0", "\ufffd")
