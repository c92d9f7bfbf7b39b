"""The tables, and their version: a store of another version is refused.

One text serves SQLite and PostgreSQL; a ``Dialect`` has their differences. Times are epoch
milliseconds of the database's clock. Writers hold the one row of ``walle_head``. So they run one
after the other, and the audit log has one order.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Never, Protocol

import msgspec

from walle_stream.errors import IntegrityError

SCHEMA_VERSION: Final = 5


class Cursor(Protocol):
    """The common methods of both libraries' cursors."""

    @property
    def rowcount(self) -> int:
        """The number of changed rows."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchall(self) -> list[Any]:
        """Return the remaining rows."""


type Execute = Callable[[str, Sequence[Any]], Cursor]
"""Runs a statement with ``?`` for each value."""


class Dialect(msgspec.Struct, frozen=True):
    """SQL that differs between the two databases."""

    now: str
    """Expression of the database's clock in epoch milliseconds."""
    blob: str
    has_table: str
    """Query that returns a row if the table ``?`` exists."""
    keyed: str
    """Suffix for a table of small rows that are found by key and changed often."""
    elements: str
    """Source with a row for each element of the JSON array ``?``, in the column ``value``."""
    element: str
    """Element ``{index}`` of the array in ``value``."""

    def source(self, **columns: str) -> str:
        """Return a source of rows that come as one value: a JSON array of arrays.

        So a statement about any number of rows has one value. ``columns`` has the columns' types by
        name, in the order of the arrays.
        """
        selected = ", ".join(
            f"CAST({self.element.format(index=index)} AS {kind}) AS {name}"
            for index, (name, kind) in enumerate(columns.items())
        )
        return f"(SELECT {selected} FROM {self.elements})"  # noqa: S608 - ours


_TABLES: Final = """
CREATE TABLE walle_head (one INTEGER PRIMARY KEY, schema_version BIGINT NOT NULL,
  generation BIGINT NOT NULL, audit_number BIGINT NOT NULL, audit_hash TEXT NOT NULL);
CREATE TABLE walle_versions (task TEXT NOT NULL, version TEXT NOT NULL,
  published_ms BIGINT NOT NULL, files TEXT NOT NULL, PRIMARY KEY (task, version));
CREATE TABLE walle_releases (release_id TEXT PRIMARY KEY, position BIGINT NOT NULL,
  task TEXT NOT NULL, version TEXT NOT NULL, revision BIGINT NOT NULL, is_open INTEGER NOT NULL,
  created_ms BIGINT NOT NULL, state TEXT NOT NULL, offer TEXT);
CREATE INDEX walle_releases_task ON walle_releases (task, is_open);
CREATE TABLE walle_stable (task TEXT PRIMARY KEY, version TEXT NOT NULL);
CREATE TABLE walle_audit (number BIGINT PRIMARY KEY, release_id TEXT NOT NULL,
  entry TEXT NOT NULL, hash TEXT NOT NULL);
CREATE INDEX walle_audit_release ON walle_audit (release_id, number);
CREATE TABLE walle_leases (name TEXT PRIMARY KEY, owner TEXT NOT NULL,
  expires_ms BIGINT NOT NULL);
CREATE TABLE walle_snapshots (kind TEXT NOT NULL, name TEXT NOT NULL, taken_ms BIGINT NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (kind, name));
CREATE TABLE walle_unproven (task TEXT NOT NULL, version TEXT NOT NULL, bare BIGINT NOT NULL,
  wrong BIGINT NOT NULL, PRIMARY KEY (task, version));
CREATE TABLE walle_scopes (id BIGINT PRIMARY KEY, task TEXT NOT NULL, version TEXT NOT NULL,
  release_id TEXT NOT NULL, kind TEXT NOT NULL, minutes_from BIGINT NOT NULL,
  hours_from BIGINT NOT NULL, step_ms BIGINT NOT NULL, step_from BIGINT NOT NULL,
  UNIQUE (task, version, release_id, kind));
CREATE TABLE walle_clock (one INTEGER PRIMARY KEY, number BIGINT NOT NULL, minute BIGINT NOT NULL);
CREATE INDEX walle_scopes_due ON walle_scopes (minutes_from);
CREATE TABLE walle_counted (scope BIGINT NOT NULL, device BIGINT NOT NULL,
  failures BIGINT NOT NULL, crashes BIGINT NOT NULL, seen BIGINT NOT NULL, failed BIGINT NOT NULL,
  crashed BIGINT NOT NULL, weighed BIGINT NOT NULL, PRIMARY KEY (scope, device)) KEYED;
CREATE TABLE walle_windows (scope BIGINT NOT NULL, number BIGINT NOT NULL, seen BIGINT NOT NULL,
  failed BIGINT NOT NULL, crashed BIGINT NOT NULL, last_ms BIGINT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (scope, number)) KEYED;
CREATE TABLE walle_marks (device BIGINT NOT NULL, incarnation TEXT NOT NULL, part BIGINT NOT NULL,
  number BIGINT NOT NULL, moved_ms BIGINT NOT NULL, PRIMARY KEY (device, incarnation, part)) KEYED;
"""
"""``position`` orders releases of one millisecond. Tables from ``walle_scopes`` on hold counts."""


def prepare(execute: Execute, dialect: Dialect) -> None:
    """Make the tables, or check that they are of this version.

    The caller's transaction must exclude other calls.

    Raises:
        IntegrityError: The tables are of another version, or were altered.
    """
    if execute(dialect.has_table, ("walle_head",)).fetchone() is None:
        text = _TABLES.replace(" BLOB ", f" {dialect.blob} ").replace(" KEYED", dialect.keyed)
        for statement in text.rstrip(";\n").split(";"):
            execute(statement, ())
        execute("INSERT INTO walle_head VALUES (1, ?, 0, 0, '')", (SCHEMA_VERSION,))
        return
    (version,) = execute("SELECT schema_version FROM walle_head", ()).fetchone() or no_head()
    if not isinstance(version, int):
        wrong: IntegrityError = altered("its tables' version", version)
        raise wrong
    if version != SCHEMA_VERSION:
        raise IntegrityError(
            f"the release store has tables of version {version}, but this walle knows version "
            f"{SCHEMA_VERSION}: "
            + (
                "they cannot be converted: begin a new store"
                if version < SCHEMA_VERSION
                else "upgrade walle"
            )
        )


def no_head() -> Never:
    """Refuse a store without the row of ``walle_head``.

    Raises:
        IntegrityError: Always.
    """
    gone: IntegrityError = altered("walle_head", "its row is missing")
    raise gone


def altered(what: str, problem: object) -> IntegrityError:
    """Return the error for data that no walle wrote."""
    return IntegrityError(
        f"{what}: the release store's data was altered: {problem}; restore the database's last "
        "backup"
    )
