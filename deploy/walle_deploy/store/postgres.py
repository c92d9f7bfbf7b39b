"""The store on PostgreSQL, for release services on several machines.

The connection's ``search_path`` names the schema; table names begin with ``walle_``. The next
transaction replaces a broken connection. The broken transaction is not repeated, since it may have
been committed.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import psycopg

from walle_deploy.store.port import Kind, ReleaseStore
from walle_deploy.store.schema import Cursor, Dialect, Execute, prepare
from walle_stream.errors import DeployError, ServiceUnreachableError, SpecFileError

_DIALECT: Final = Dialect(
    now="CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
    blob="BYTEA",
    has_table="SELECT 1 FROM pg_tables WHERE tablename = ? AND schemaname = current_schema()",
    # free space in a page takes a row's next version without a change of any index
    keyed=" WITH (fillfactor = 75)",
    elements="json_array_elements(CAST(? AS json)) AS source (value)",
    element="value ->> {index}",
)
_LOCK: Final = "SELECT pg_advisory_xact_lock(?)"
_NUMBER: Final = 0x57414C4C45
_BEGIN: Final[dict[Kind | Literal["making"], tuple[str, tuple[int, ...]]]] = {
    "making": (_LOCK, (_NUMBER,)),
    # writers run one after the other, as in SQLite; counting waits only for counting
    "writing": ("SELECT one FROM walle_head FOR UPDATE", ()),
    "counting": (_LOCK, (_NUMBER + 1,)),
    "reading": ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY", ()),
}


class PostgresStore(ReleaseStore):
    """A ``ReleaseStore`` on a PostgreSQL database."""

    def __init__(self, url: str) -> None:
        """Connect to an address in libpq's form; missing tables are made.

        Raises:
            SpecFileError: The address is not valid.
            ServiceUnreachableError: The database does not answer.
            IntegrityError: The tables are of a later version.
        """
        super().__init__(_DIALECT)
        self._url = url
        self._shown = _shown(url)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        with self._lock, self._transaction("making"):
            prepare(self._execute, _DIALECT)

    def close(self) -> None:
        """Close the store; a second call does nothing."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _execute(self, statement: str, values: Sequence[Any]) -> Cursor:
        # no statement has a '?' or '%' in a literal
        return self._connected().execute(statement.replace("?", "%s"), values)

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._url,
                connect_timeout=5,
                application_name="walle",
                client_encoding="utf8",  # even if the database is SQL_ASCII
            )
        return self._connection

    @contextmanager
    def _transaction(self, kind: Kind | Literal["making"]) -> Iterator[Execute]:
        try:
            with self._connected().transaction():
                self._execute(*_BEGIN[kind])
                yield self._execute
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if self._connection is not None:
                self._connection.close()
            raise ServiceUnreachableError(
                f"release store {self._shown}: {_line(error)}; check that the database runs, and "
                "its address"
            ) from error
        except psycopg.Error as error:
            raise DeployError(f"release store {self._shown}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _shown(url: str) -> str:
    """Return an address without its password.

    Raises:
        SpecFileError: The address is not valid.
    """
    try:
        fields = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        # libpq quotes parts of the address, or puts them behind a colon: both may hold a password
        none: SpecFileError = _none(re.split('[:"]', _line(error), maxsplit=1)[0].rstrip())
        raise none from None
    parts = {name: str(fields.get(name) or "") for name in ("host", "port", "dbname")}
    if not re.fullmatch("[0-9,]*", parts["port"]) or "@" in "".join(parts.values()):
        wrong: SpecFileError = _none("a password with @ or / in it ends at that character")
        raise wrong
    return " ".join(f"{name}={text}" for name, text in parts.items() if text)


def _none(problem: str) -> SpecFileError:
    return SpecFileError(
        f"the address of the release store is not valid for PostgreSQL: {problem}: expected "
        "postgresql://USER:PASSWORD@HOST/DATABASE, with %XX for reserved characters"
    )
