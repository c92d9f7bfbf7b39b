"""Queries of a transaction, the same on both databases."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from walle_deploy.model.releases import ActiveRelease, ReleaseTable, VersionFiles
from walle_deploy.store.rows import (
    END,
    LAST,
    WINDOW_MS,
    AuditHead,
    CountedWindow,
    Scope,
    SealedEntry,
    StoredRelease,
    StoredScope,
)
from walle_deploy.store.schema import Dialect, Execute, altered, no_head

SCOPE: Final = "id, task, version, release_id, kind, minutes_from, hours_from, step_ms, step_from"
_DAY: Final = 1_440
_RELEASE: Final = "release_id, task, version, revision, is_open, created_ms, state, offer"


class ReadTransaction:
    """A read of one consistent state of the store. Every method may block for I/O.

    A task is ``SCENARIO/TASK`` everywhere.
    """

    def __init__(self, execute: Execute, dialect: Dialect) -> None:
        """Read through an open transaction."""
        self._execute = execute
        self._dialect = dialect

    def now_ms(self) -> int:
        """Return the database's clock in epoch milliseconds, the same for all processes."""
        return int(self._execute(f"SELECT {self._dialect.now}", ()).fetchone()[0])

    def window_at(self, now_ms: int) -> int:
        """Return the number of the current window. It never falls, whatever the clock does.

        It grows with the minutes of the clock. If the clock is set back, it grows by one. Between
        two counting transactions it grows by a day at most.
        """
        minute = now_ms // WINDOW_MS
        row = self._execute("SELECT number, minute FROM walle_clock", ()).fetchone()
        if row is None:
            return minute
        number, last = map(int, row)
        return number if minute == last else number + min(max(minute - last, 1), _DAY)

    def generation(self) -> int:
        """Return a number that grows with each change of ``table``."""
        return _converted(int, self._head("generation")[0], "the table's number")

    def table(self, known: Mapping[str, VersionFiles] | None = None) -> ReleaseTable:
        """Return the table for checks of devices.

        ``known`` has files of an earlier table by ``TASK@VERSION``, which are not read again. A
        published version never changes, and it may have files for very many devices.
        """
        rows = self._execute(
            "SELECT offer FROM walle_releases WHERE offer IS NOT NULL ORDER BY position DESC", ()
        ).fetchall()
        every = [_decoded(ActiveRelease, offer, "a release's offer") for (offer,) in rows]
        offers = tuple(offer for offer in every if offer.stage != "withdrawn")
        withdrawn: dict[str, frozenset[str]] = {}
        for offer in every:
            if offer.stage == "withdrawn":
                withdrawn[offer.task] = withdrawn.get(offer.task, frozenset()) | {offer.version}
        stable = {task: version for task, version in self.stable().items() if version}
        wanted = {(offer.task, offer.version) for offer in offers} | set(stable.items())
        files: dict[str, VersionFiles] = {}
        for task, version in sorted(wanted):
            name = f"{task}@{version}"
            version_files = (known or {}).get(name) or self.files(task, version)
            if version_files is not None:
                files[name] = version_files
        return ReleaseTable(self.generation(), offers, stable, files, withdrawn=withdrawn)

    def files(self, task: str, version: str) -> VersionFiles | None:
        """Return the files of a published version, or None if there is none."""
        row = self._execute(
            "SELECT files FROM walle_versions WHERE task = ? AND version = ?", (task, version)
        ).fetchone()
        return None if row is None else _decoded(VersionFiles, row[0], f"{task}@{version}")

    def tasks(self) -> Sequence[str]:
        """Return the tasks with published versions, sorted."""
        rows = self._execute("SELECT DISTINCT task FROM walle_versions", ()).fetchall()
        return sorted(_converted(str, task, "a version's task") for (task,) in rows)

    def versions(self, task: str) -> Mapping[str, VersionFiles]:
        """Return the published versions of a task, the oldest first."""
        rows = self._execute(
            "SELECT version, files FROM walle_versions WHERE task = ?"
            " ORDER BY published_ms, version",
            (task,),
        ).fetchall()
        return {
            _converted(str, version, task): _decoded(VersionFiles, files, f"{task}@{version}")
            for version, files in rows
        }

    def release(self, release_id: str) -> StoredRelease | None:
        """Return a release, or None if there is none of that name."""
        row = self._execute(
            f"SELECT {_RELEASE} FROM walle_releases WHERE release_id = ?",  # noqa: S608 - ours
            (release_id,),
        ).fetchone()
        return None if row is None else _release(row)

    def releases(self, task: str = "", *, only_open: bool = False) -> Sequence[StoredRelease]:
        """Return releases, the oldest first; only those of ``task`` if it is given."""
        rows = self._execute(
            f"SELECT {_RELEASE} FROM walle_releases"  # noqa: S608 - ours
            " WHERE (? = '' OR task = ?) AND is_open >= ? ORDER BY position",
            (task, task, int(only_open)),
        ).fetchall()
        return [_release(row) for row in rows]

    def stable(self) -> Mapping[str, str]:
        """Return each task's version for devices outside all releases; "" means no version."""
        rows = self._execute("SELECT task, version FROM walle_stable", ()).fetchall()
        return _converted(dict[str, str], dict(rows), "the stable versions")

    def audit_head(self) -> AuditHead:
        """Return the end of the audit log, as stored beside the entries."""
        number, digest = self._head("audit_number, audit_hash")
        return _converted(AuditHead, {"number": number, "hash": digest}, "the audit log's end")

    def audit(
        self, release_id: str = "", after: int = 0, limit: int = END
    ) -> Sequence[SealedEntry]:
        """Return entries of the audit log after the number ``after``, the oldest first."""
        rows = self._execute(
            "SELECT number, release_id, entry, hash FROM walle_audit"
            " WHERE number > ? AND (? = '' OR release_id = ?) ORDER BY number LIMIT ?",
            (after, release_id, release_id, limit),
        ).fetchall()
        return [
            _converted(
                SealedEntry,
                {"number": number, "release_id": release_id, "text": text, "hash": digest},
                f"audit log: entry {number}",
            )
            for number, release_id, text, digest in rows
        ]

    def snapshot(self, kind: str, name: str) -> bytes | None:
        """Return the bytes of ``put_snapshot``, or None."""
        row = self._execute(
            "SELECT data FROM walle_snapshots WHERE kind = ? AND name = ?", (kind, name)
        ).fetchone()
        return None if row is None else bytes(row[0])

    def device_counts(self, task: str) -> Mapping[str, int]:
        """Return the number of devices by version; a device counts for the last reported one."""
        rows = self._execute(
            "SELECT versions.version, walle_windows.seen FROM walle_scopes"
            " JOIN walle_windows ON walle_windows.scope = walle_scopes.id"
            " JOIN walle_scopes AS versions ON versions.id = walle_windows.number"
            " WHERE walle_scopes.task = ? AND walle_scopes.version = '' AND walle_scopes.kind = ?"
            " AND versions.task = walle_scopes.task AND walle_windows.seen > 0",
            (task, LAST),
        ).fetchall()
        return dict(rows)

    def lease_ends_ms(self, name: str) -> int:
        """Return the end of a lease by the database's clock; 0 if it was never taken."""
        row = self._execute(
            "SELECT expires_ms FROM walle_leases WHERE name = ?", (name,)
        ).fetchone()
        return 0 if row is None else int(row[0])

    def scopes(self, wanted: Collection[Scope]) -> Mapping[Scope, StoredScope]:
        """Return those of the scopes that exist in the store."""
        columns = ("task", "version", "release_id", "kind")
        source = self._dialect.source(**dict.fromkeys(columns, "TEXT"))
        rows = self._execute(
            f"SELECT {SCOPE} FROM walle_scopes"  # noqa: S608 - ours
            f" WHERE ({', '.join(columns)}) IN {source}",
            (msgspec.json.encode(list(wanted)).decode(),),
        ).fetchall()
        scopes = [StoredScope(row[0], Scope(*row[1:5]), *row[5:]) for row in rows]
        return {stored.scope: stored for stored in scopes}

    def unproven(self, task: str, version: str) -> tuple[int, int]:
        """Return the numbers of a version's reports without a receipt, and with an invalid one."""
        query = "SELECT bare, wrong FROM walle_unproven WHERE task = ? AND version = ?"
        row = self._execute(query, (task, version)).fetchone()
        return (0, 0) if row is None else (row[0], row[1])

    def windows(
        self, scope: int, first: int, after: int = -1, end: int = END
    ) -> Sequence[CountedWindow]:
        """Return the windows of a scope from ``first`` to before ``end``, in order.

        Windows up to ``after`` have empty ``data``, because the caller already has it.
        """
        rows = self._execute(
            "SELECT number, seen, failed, crashed, last_ms,"
            " CASE WHEN number > ? THEN data END FROM walle_windows"
            " WHERE scope = ? AND number >= ? AND number < ? ORDER BY number",
            (after, scope, first, end),
        ).fetchall()
        return [CountedWindow._make((*row[:-1], bytes(row[-1] or b""))) for row in rows]

    def _head(self, columns: str) -> Sequence[Any]:
        query = f"SELECT {columns} FROM walle_head"  # noqa: S608 - ours
        row: Sequence[Any] | None = self._execute(query, ()).fetchone()
        return row or no_head()


def _release(row: Sequence[Any]) -> StoredRelease:
    fields = dict(zip(_RELEASE.split(", "), row, strict=True))
    what, offer = f"release {row[0]!r}", fields.pop("offer")
    release = _converted(StoredRelease, {**fields, "is_open": bool(fields["is_open"])}, what)
    if offer is None:
        return release
    return msgspec.structs.replace(release, offer=_decoded(ActiveRelease, offer, what))


def _converted[T](kind: type[T], value: object, what: str) -> T:
    # an SQLite file takes any value in any column
    try:
        return msgspec.convert(value, kind)
    except msgspec.MsgspecError as error:
        raise altered(what, error) from error


def _decoded[T](kind: type[T], text: str, what: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError) as error:
        raise altered(what, error) from error
