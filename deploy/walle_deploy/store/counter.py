"""Statements that count reports, the same on both databases.

``walle_scopes`` has a row for each scope: a version, or a group of a release. ``walle_counted`` has
a row for each device of a scope. ``walle_windows`` has a row for each minute of a scope with
reports; see ``rows.CountedWindow``. ``walle_marks`` has the last counted frame by device and
partition of a data directory. Marks are written with their counts, so each frame counts once.
"""
# ruff: noqa: S608 - the statements contain only our own names

import secrets
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from walle_deploy.store.reader import SCOPE, ReadTransaction
from walle_deploy.store.rows import WINDOW_MS, CountedDevice, CountedWindow, Scope, StoredScope

_DEVICE: Final = ", ".join(CountedDevice._fields)
_WINDOW: Final = ", ".join(CountedWindow._fields)
_INT: Final = "BIGINT"
_UPSERT: Final = "WHERE true ON CONFLICT"  # without 'WHERE', SQLite reads ON as part of a join


type Mark = tuple[int, str, int]
"""The hash of a device, the incarnation of a data directory, and a partition of it."""


class CountTransaction(ReadTransaction):
    """A transaction that counts reports; one at a time over all processes.

    Each method takes any number of rows, and sends one query.
    """

    def begin_window(self, now_ms: int) -> int:
        """Return the number of the current window; counts of this transaction belong to it."""
        number, minute = self.window_at(now_ms), now_ms // WINDOW_MS
        self._execute(
            "INSERT INTO walle_clock VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE"
            " SET number = excluded.number, minute = excluded.minute"
            " WHERE walle_clock.minute <> excluded.minute",
            (number, minute),
        )
        return number

    def marks(self, wanted: Collection[Mark]) -> Mapping[Mark, int]:
        """Return the number of the last counted frame of each mark that exists."""
        source = self._dialect.source(device=_INT, incarnation="TEXT", part=_INT)
        rows = self._bulk(
            "SELECT device, incarnation, part, number FROM walle_marks"
            f" WHERE (device, incarnation, part) IN {source}",
            wanted,
        )
        return {(device, name, part): number for device, name, part, number in rows.fetchall()}

    def put_marks(self, marks: Mapping[Mark, int], now_ms: int) -> None:
        """Store the numbers of last frames, with the time of the change."""
        source = self._dialect.source(
            device=_INT, incarnation="TEXT", part=_INT, number=_INT, moved_ms=_INT
        )
        self._bulk(
            f"INSERT INTO walle_marks SELECT * FROM {source} AS came {_UPSERT}"
            " (device, incarnation, part) DO UPDATE SET number = excluded.number,"
            " moved_ms = excluded.moved_ms",
            sorted((*mark, number, now_ms) for mark, number in marks.items()),
        )

    def trim_marks(self, devices: Collection[int], most: int) -> None:
        """Keep the ``most`` marks of each device that moved last, and delete its others."""
        source = self._dialect.source(device=_INT)
        self._bulk(
            "DELETE FROM walle_marks WHERE (device, incarnation, part) IN"
            " (SELECT device, incarnation, part FROM (SELECT device, incarnation, part,"
            " ROW_NUMBER() OVER (PARTITION BY device ORDER BY moved_ms DESC, incarnation, part)"
            f" AS age FROM walle_marks WHERE device IN {source}) AS own WHERE age > {most:d})",
            [(device,) for device in sorted(devices)],
        )

    def published(self, versions: Collection[tuple[str, str]]) -> Collection[tuple[str, str]]:
        """Return the versions that are published."""
        source = self._dialect.source(task="TEXT", version="TEXT")
        rows = self._bulk(
            f"SELECT task, version FROM walle_versions WHERE (task, version) IN {source}", versions
        )
        return {(task, version) for task, version in rows.fetchall()}

    def make_scope(self, scope: Scope, minutes_from: int, hours_from: int) -> StoredScope:
        """Make a scope that does not exist yet."""
        # a random id: no later scope may have the id of a dropped one
        stored = StoredScope(secrets.randbits(62), scope, minutes_from, hours_from, 0, 0)
        self._execute(
            f"INSERT INTO walle_scopes ({SCOPE}) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0)",
            (stored.id, *scope, minutes_from, hours_from),
        )
        return stored

    def counted(
        self, devices: Collection[tuple[int, int]]
    ) -> Mapping[tuple[int, int], CountedDevice]:
        """Return the rows of devices by (id of the scope, signed 64-bit hash)."""
        source = self._dialect.source(scope=_INT, device=_INT)
        rows = self._bulk(
            f"SELECT scope, device, {_DEVICE} FROM walle_counted WHERE (scope, device) IN {source}",
            sorted(devices),
        )
        return {(row[0], row[1]): CountedDevice._make(row[2:]) for row in rows.fetchall()}

    def put_counted(self, devices: Mapping[tuple[int, int], CountedDevice]) -> None:
        """Replace the rows of devices."""
        source = self._dialect.source(
            scope=_INT, device=_INT, **dict.fromkeys(CountedDevice._fields, _INT)
        )
        changed = ", ".join(f"{name} = excluded.{name}" for name in CountedDevice._fields)
        self._bulk(
            f"INSERT INTO walle_counted SELECT * FROM {source} AS came {_UPSERT}"
            f" (scope, device) DO UPDATE SET {changed}",
            sorted((*key, *row) for key, row in devices.items()),
        )

    def window(self, scope: int, number: int) -> CountedWindow | None:
        """Return one window, or None if there is none."""
        row = self._execute(
            f"SELECT {_WINDOW} FROM walle_windows WHERE scope = ? AND number = ?", (scope, number)
        ).fetchone()
        return None if row is None else CountedWindow._make((*row[:-1], bytes(row[-1])))

    def put_window(self, scope: int, window: CountedWindow) -> None:
        """Store a window; it replaces the one with its number."""
        changed = ", ".join(f"{name} = excluded.{name}" for name in CountedWindow._fields[1:])
        self._execute(
            f"INSERT INTO walle_windows (scope, {_WINDOW}) VALUES (?, ?, ?, ?, ?, ?, ?)"
            f" ON CONFLICT (scope, number) DO UPDATE SET {changed}",
            (scope, *window),
        )

    def move_devices(self, changes: Mapping[tuple[int, int], tuple[int, int, int]]) -> None:
        """Add to ``seen``, ``failed`` and ``crashed`` of windows by (id of the scope, number)."""
        source = self._dialect.source(scope=_INT, number=_INT, seen=_INT, failed=_INT, crashed=_INT)
        self._bulk(
            "UPDATE walle_windows SET seen = walle_windows.seen + moved.seen,"
            " failed = walle_windows.failed + moved.failed,"
            f" crashed = walle_windows.crashed + moved.crashed FROM {source} AS moved"
            " WHERE walle_windows.scope = moved.scope AND walle_windows.number = moved.number",
            sorted((*key, *change) for key, change in changes.items()),
        )

    def add_unproven(self, reports: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """Add to ``unproven`` of published versions, by (task, version). Makes no row."""
        for name, more in reports.items():
            self._execute(
                "UPDATE walle_unproven SET bare = bare + ?, wrong = wrong + ?"
                " WHERE task = ? AND version = ?",
                (*more, *name),
            )

    def due_scope(self, minutes_from: int) -> StoredScope | None:
        """Return the scope with the lowest ``minutes_from`` below the argument, or None."""
        row = self._execute(
            f"SELECT {SCOPE} FROM walle_scopes WHERE minutes_from < ?"
            " ORDER BY minutes_from LIMIT 1",
            (minutes_from,),
        ).fetchone()
        return None if row is None else StoredScope(row[0], Scope(*row[1:5]), *row[5:])

    def put_edges(self, scope: StoredScope) -> None:
        """Store the folding limits of a scope, and the start of its release's step."""
        self._execute(
            "UPDATE walle_scopes SET minutes_from = ?, hours_from = ?, step_ms = ?, step_from = ?"
            " WHERE id = ?",
            (scope.minutes_from, scope.hours_from, scope.step_ms, scope.step_from, scope.id),
        )

    def drop_windows(self, scope: int, first: int, end: int) -> None:
        """Delete the windows from ``first`` to before ``end``."""
        self._execute(
            "DELETE FROM walle_windows WHERE scope = ? AND number >= ? AND number < ?",
            (scope, first, end),
        )

    def drop_scope(self, scope: StoredScope, devices: int) -> None:
        """Drop a scope: readers miss it at once, its rows go in steps of ``devices``.

        While rows are left, ``due_scope`` returns this scope.
        """
        cursor = self._execute(
            "DELETE FROM walle_counted WHERE scope = ? AND device IN"
            " (SELECT device FROM walle_counted WHERE scope = ? LIMIT ?)",
            (scope.id, scope.id, devices),
        )
        if cursor.rowcount < devices:
            self._execute("DELETE FROM walle_windows WHERE scope = ?", (scope.id,))
            self._execute("DELETE FROM walle_scopes WHERE id = ?", (scope.id,))
        else:
            # no task has this name: reports that arrive now begin a new scope
            self._execute(
                "UPDATE walle_scopes SET task = '', version = CAST(id AS TEXT), minutes_from = -1"
                " WHERE id = ?",
                (scope.id,),
            )

    def _bulk(self, statement: str, rows: Collection[Any]) -> Any:
        return self._execute(statement, (msgspec.json.encode(list(rows)).decode(),))
